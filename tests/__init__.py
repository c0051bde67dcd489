"""Tests; their folders mirror the packages."""
