"""The terminal browser of a recording."""
