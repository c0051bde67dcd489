"""The run in three lines: all that the first screen needs, and so without any import that it does not."""

from __future__ import annotations

from dynadiag.recording.records import Run
from tui.roles import Fragment, Line, line

__all__ = ["run_lines"]


def run_lines(run: Run, *, live: bool) -> list[Line]:
    """What is known before anything but the run was read."""
    lines = [line((_named(run), "strong"))]
    facts = [f"torch {run.torch}"] if run.torch else []
    facts += [f"Python {run.python}"] if run.python else []
    facts += [f"Triton {run.triton}"] if run.triton else []
    facts += [f"on {run.device}"] if run.device else []
    facts += [f"rank {run.rank}"] if run.rank is not None else []
    facts += [f"ran {run.seconds:.1f} s"] if run.seconds is not None else []
    lines.append(line((", ".join(facts), "dim")))
    return [*lines, line(_ending(run, live=live))]


def _named(run: Run) -> str:
    """The program as it is called from the folder that it ran in. (`render.paths` would be one more import.)"""
    return run.target.removeprefix(f"{run.cwd}/") if run.target else "a program"


def _ending(run: Run, *, live: bool) -> Fragment:
    """How it ended, with its role."""
    if live:
        return "● still running: this is what was recorded so far", "good"
    if run.exit_code == 0:
        return "✓ ended with exit code 0", "good"
    if run.foreign:
        return "? a log made elsewhere: how the program ended is not in it", "dim"
    if run.exit_code is None:
        return f"? {'nobody saw it end' if run.complete else 'the recording was cut short'}", "break"
    if run.exit_code < 0:
        return f"✗ ended by signal {-run.exit_code}", "error"
    return f"✗ ended with exit code {run.exit_code}", "error"
