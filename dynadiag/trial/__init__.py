"""Run one candidate in isolation and report how it ended.

A `Plan` says what a trial changes, a `Runner` runs it (in a fresh interpreter, in a fork of the zygote, or in a fork of
the program stopped at its first compiled call), and an `Outcome` says how it ended.
"""

from __future__ import annotations

__all__: list[str] = []  # import from the modules: those that run in the trial's process must not import the others
