"""The ladder of rungs, and the descent below it: from a failing program to the decision of the compiler at fault."""

from __future__ import annotations

__all__: list[str] = []  # import from the modules: `switches` runs in the trial's process and loads torch
