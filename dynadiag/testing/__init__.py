"""The pytest plugin: records what torch compiles in each test. `plugin` is its entry point."""
