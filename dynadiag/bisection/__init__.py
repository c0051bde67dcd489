"""Finds which decision of the compiler makes a program fail: first the rung of the compiler, then the decision."""
