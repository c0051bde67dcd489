"""What a recording holds, in a few lines that cost the same whatever its size: no record but the run is read."""

from __future__ import annotations

from dynadiag.recording.reader import Recording
from dynadiag.render.clean import clean_line
from dynadiag.render.style import Style
from dynadiag.render.wrap import wrap_indented

__all__ = ["recording_summary"]

_NOUNS = {
    "compile": "compiles",
    "graph": "graphs at all stages",
    "break": "graph breaks met",
    "recompile": "recompiles",
    "skipped_frame": "skipped frames",
    "guard": "guards",
    "symbol": "size symbols",
    "kernel": "kernels",
    "trial": "trials",
    "source": "source files",
}


def recording_summary(recording: Recording, style: Style) -> str:
    """The run, the number of records of each kind and of events, and what could not be seen; with a line end."""
    run, totals = recording.run, recording.totals()
    head = ", ".join(clean_line(part) for part in (run.torch and f"torch {run.torch}", run.device) if part)
    ended = "cut short" if run.exit_code is None and not run.complete else f"exit code {run.exit_code}"
    ended = "imported" if run.is_foreign else ended
    lines = [f"{style.paint(clean_line(run.target), 'strong')} ({head or 'torch unknown'}; {ended})"]
    lines += [f"  {totals[name]:>9,} {noun}" for name, noun in _NOUNS.items() if totals.get(name)]
    lines.append(f"  {sum(recording.counts().values()):>9,} events of the trace")
    for note in run.notes:
        lines += wrap_indented("note: ", clean_line(note), style.columns)
    return "\n".join(lines) + "\n"
