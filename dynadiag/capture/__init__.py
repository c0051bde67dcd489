"""What listens to torch and appends to a journal."""
