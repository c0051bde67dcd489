"""Run one candidate in isolation and say how it ended."""
