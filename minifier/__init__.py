"""Reduce a failing FX graph to its culprits."""
