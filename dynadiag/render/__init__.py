"""Renderers of an explanation: text, JSON, DOT."""
