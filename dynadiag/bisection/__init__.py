"""Finds which decision of the compiler makes a program fail: first the rung of the compiler, then the decision."""

from __future__ import annotations

__all__: list[str] = []  # import from the modules: `switches` runs in the trial's process and loads torch
