"""What the kernels of a run compute, in short: how many operators became how many calls, and the largest of those."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dynadiag.explain.explanation import Explanation
from dynadiag.explain.formatting import count, list_some
from dynadiag.render.clean import clean_line
from dynadiag.render.components import labelled_lines
from dynadiag.render.paths import fit_path, source_location
from dynadiag.render.style import Style
from dynadiag.render.wrap import truncate_end

if TYPE_CHECKING:
    from dynadiag.kernels import KernelCall

__all__ = ["launches_section"]

_CALLS = 5  # calls that are shown without --all
_PLACES = 3  # lines of one call
_LONGEST = 2000  # characters of a call that are looked at: more than any terminal shows


def launches_section(explanation: Explanation, calls: Sequence[KernelCall], style: Style, all_: bool) -> list[str]:
    """The calls, that which moves the most bytes first, with their nodes and the lines these are from."""
    if not calls:
        return []
    ranked = sorted(calls, key=lambda call: -(call.cost.bytes_moved or 0))
    shown = ranked if all_ else ranked[:_CALLS]
    lines = labelled_lines("kernels", "strong", _sum(explanation, calls), style)
    for call in shown:
        lines += _call(call, explanation.run.cwd, style)
    hidden = len(ranked) - len(shown)
    if hidden:
        lines.append(style.paint(f"    ... and {count(hidden, 'more call')}; `dynadiag kernels` lists them", "dim"))
    return [*lines, ""]


def _sum(explanation: Explanation, calls: Sequence[KernelCall]) -> str:
    """Operators against calls, of the ways forward: only those have the program's own operators to count against."""
    forward = [call for call in calls if call.stage != "backward"]
    backward = len(calls) - len(forward)
    compiles = {call.compile_id for call in forward}
    operators = sum(item.ops for item in explanation.graphs if item.stage == "dynamo" and item.compile_id in compiles)
    more = f"; {count(backward, 'call')} in the backward" if backward else ""
    if not operators:
        return f"{count(len(forward), 'kernel call')}{more}"
    kernels = len({(call.event, call.name) for call in forward})
    each = kernels == len(forward)
    ran = count(len(forward), "kernel call") if each else f"{count(len(forward), 'call')} of {count(kernels, 'kernel')}"
    became = f"{count(operators, 'operator')} run as {ran}"
    return f"{became} (uncompiled: about a launch each){more}"


def _call(call: KernelCall, cwd: str | None, style: Style) -> list[str]:
    what = ", ".join(call.nodes) or "no mapping to nodes"
    head = f"{call.compile_id} {call.stage or 'graph unknown'} {call.name}: {what}"
    places = [source_location(item.file, item.line, None, cwd) for item in (call.source_lines or call.view_lines)]
    inferred = ", inferred from the code" if call.evidence == "dataflow" and places else ""
    at = f"{list_some(places[:_PLACES])}{' ...' if len(places) > _PLACES else ''}{inferred}"
    return [
        f"    {truncate_end(clean_line(head[:_LONGEST]), style.columns - 4)}",
        *([f"        at {fit_path(at, style.columns - 11)}"] if places else []),
    ]
