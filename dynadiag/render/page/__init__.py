"""The HTML page of recordings: one file that works offline, asks for nothing, and shows foreign text as text."""
