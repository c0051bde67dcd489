"""An explanation as text for a terminal or a file, in the manner of rustc."""

from __future__ import annotations

from dynadiag import __version__
from dynadiag.explain.explanation import Explanation
from dynadiag.render.breaks import breaks_section
from dynadiag.render.clean import clean_line
from dynadiag.render.recompiles import recompiles_section
from dynadiag.render.style import Style
from dynadiag.render.wrap import cut, hanging

__all__ = ["explanation_text"]


def explanation_text(
    explanation: Explanation, style: Style | None = None, *, all_: bool = False, recording: str | None = None
) -> str:
    """The report, with a line end. `recording` is the path to name in the command that ends it.

    Nothing in it comes from the recording uncleaned; the escape codes are those of `style` alone.
    """
    style = style or Style()
    lines = [
        *_summary(explanation, style),
        "",
        *breaks_section(explanation, style, all_),
        *recompiles_section(explanation, style, all_),
        *_next(recording, style),
    ]
    return "\n".join(lines) + "\n"


def _summary(explanation: Explanation, style: Style) -> list[str]:
    run = explanation.run
    torch = f"torch {run.torch}" if run.torch else "torch unknown"
    head = f"dynadiag {__version__}, {torch}: {clean_line(run.target)}"
    counts = ", ".join(
        (
            _count(explanation.graph_count, "graph"),
            _count(explanation.break_count, "graph break"),
            _count(explanation.recompile_count, "recompile"),
        )
    )
    lines = [style.paint(cut(clean_line(head), style.columns), "strong"), counts]
    for note in explanation.notes:
        lines += hanging("note: ", note, style.columns)
    return lines


def _next(recording: str | None, style: Style) -> list[str]:
    if recording is None:
        return []
    return [style.paint("next:", "help") + f" dynadiag browse {clean_line(recording)}"]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
