"""Reads what torch writes as text, of 2.11 to 2.15, as values: above it nothing matches a sentence of torch's."""
