"""The run in three lines. The first screen needs only these, so this module imports little."""

from __future__ import annotations

from dynadiag.recording.records import Run
from tui.styled_text import Fragment, Line, line


def run_lines(run: Run, *, live: bool) -> list[Line]:
    """Return the lines that are known as soon as the recording is open: program, versions, exit status."""
    # Relative to the working directory; importing `render.paths` would take longer.
    name = run.target.removeprefix(f"{run.cwd}/") if run.target.strip("?") else "a program that is not named"
    lines = [line((name, "strong"))]
    named = {"torch": run.torch, "Python": run.python, "Triton": run.triton, "on": run.device, "rank": run.rank}
    facts = [f"{name} {value}" for name, value in named.items() if value or value == 0]
    facts += [f"ran {run.seconds:.1f} s"] if run.seconds is not None else []
    lines.append(line((", ".join(facts), "dim")))
    return [*lines, line(_exit_sentence(run, live=live))]


def _exit_sentence(run: Run, *, live: bool) -> Fragment:
    """Return how the run ended, and the role of that text."""
    if live:
        return "● still running: this shows what is recorded so far", "good"
    if run.exit_code == 0:
        return "✓ ended with exit code 0", "good"
    if run.is_foreign:
        return "? an imported log: it does not say how the program ended", "dim"
    if run.exit_code is None and run.complete and run.rank is not None:
        return "ended; a rank does not see its own exit code", ""
    if run.exit_code is None:
        return f"? {'the exit code is not known' if run.complete else 'the recording was cut short'}", "break"
    if run.exit_code < 0:
        return f"✗ ended by signal {-run.exit_code}", "error"
    return f"✗ ended with exit code {run.exit_code}", "error"
