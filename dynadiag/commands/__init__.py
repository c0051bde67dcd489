"""The commands, one module each: its docstring is the help, `prepare_parser` adds the options, `run` does the work."""
