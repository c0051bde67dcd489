"""Tests of explaining."""
