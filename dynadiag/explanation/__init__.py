"""A recording explained: its breaks and their causes, its guards and recompiles, where the time went, what to do."""
