"""The ladder of rungs, and the descent below it."""
