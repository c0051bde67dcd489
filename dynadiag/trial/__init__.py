"""Run one candidate in isolation and say how it ended.

`Runner` is the way in: fresh interpreters, forks of a zygote, forks of the program at its first compiled call. A
`Plan` says what a trial does differently, an `Outcome` how it ended.
"""

from __future__ import annotations

__all__: list[str] = []  # import from the modules: half of them run in the trial's process and must stay light
