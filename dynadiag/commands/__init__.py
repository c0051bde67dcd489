"""One file a command: its arguments and its run()."""
