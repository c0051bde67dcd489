"""Views of an explanation: text, JSON, DOT. Each is a function of the same data."""
