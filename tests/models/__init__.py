"""Tests of explain on real architectures."""
