"""Tests of the recording."""
