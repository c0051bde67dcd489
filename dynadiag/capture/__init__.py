"""Listen to torch in the user's process and append its events to a journal."""
