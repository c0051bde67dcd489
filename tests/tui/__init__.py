"""Tests of the terminal browser."""
