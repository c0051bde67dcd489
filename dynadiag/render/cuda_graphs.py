"""The CUDA graphs of a run as text: how many were recorded, and what was left without one and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dynadiag.explanation.cuda_graphs import CudaGraph
from dynadiag.explanation.explanation import Explanation
from dynadiag.explanation.formatting import count
from dynadiag.render.clean import clean_line
from dynadiag.render.components import help_lines, labelled_lines
from dynadiag.render.paths import source_location
from dynadiag.render.style import Style
from dynadiag.render.wrap import wrap_indented

__all__ = ["cuda_graphs_section"]

_SHOWN = 5  # skipped ones, and codes that were recorded again, without --all
_LONGEST = 300  # characters of a reason
_AGAIN = (
    "Code is recorded again for each new size, for inputs at new addresses, and for each way through the program that "
    "leads to it; TORCH_LOGS=+cudagraphs prints which it was."
)


def cuda_graphs_section(explanation: Explanation, style: Style, all_: bool) -> list[str]:
    """A line for the sum, one for each reason and place, one for each code that was recorded more than once."""
    found = explanation.cuda_graphs
    if not found:
        return []
    again = Counter((item.compile_id, item.backward) for item in found if item.what == "re-recorded")
    lines = labelled_lines("cuda graphs", "strong", _sum(found), style)
    told = [_skipped(item, explanation.run.cwd) for item in found if item.what == "skipped"]
    told += [f"{_code(*code)} recorded {count(times + 1, 'time')}" for code, times in again.items()]
    for text in told if all_ else told[:_SHOWN]:
        lines += wrap_indented("    ", text, style.columns)
    if not all_ and len(told) > _SHOWN:
        lines.append(style.paint(f"    ... and {len(told) - _SHOWN} more; --all shows them", "dim"))
    return [*lines, *(help_lines(_AGAIN, style) if again else ()), ""]


def _sum(found: Sequence[CudaGraph]) -> str:
    """``3 recorded in 0.41 s, 1 of them again; 2 skipped``."""
    recorded = [item for item in found if item.what != "skipped"]
    again, skipped = sum(item.what == "re-recorded" for item in recorded), len(found) - len(recorded)
    seconds = sum(item.seconds or 0.0 for item in recorded)
    parts = [f"{len(recorded)} recorded in {seconds:.2f} s" + (f", {again} of them again" if again else "")]
    return "; ".join((parts if recorded else []) + ([f"{skipped} skipped"] if skipped else []))


def _skipped(item: CudaGraph, cwd: str | None) -> str:
    """``0/0 backward skipped: mutated inputs (1 instances), at prog.py:7``."""
    at = f", at {source_location(item.file, item.line, None, cwd)}" if item.file else ""
    return f"{_code(item.compile_id, item.backward)} skipped: {clean_line((item.reason or '')[:_LONGEST])}{at}"


def _code(compile_id: str, backward: bool | None) -> str:
    named = "code of a compile that torch did not name" if compile_id == "-" else clean_line(compile_id)
    return f"{named} backward" if backward else named
