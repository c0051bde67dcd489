"""What the kernels of a run compute, in short: how many operators became how many calls, and the largest of those."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dynadiag.explanation.explanation import Explanation
from dynadiag.explanation.formatting import count
from dynadiag.render.clean import clean_line
from dynadiag.render.components import labelled_lines
from dynadiag.render.paths import fit_path, source_location
from dynadiag.render.style import Style
from dynadiag.render.wrap import truncate_end, width

if TYPE_CHECKING:
    from dynadiag.kernels import KernelCall

__all__ = ["launches_section"]

_CALLS = 5  # calls that are shown without --all
_PLACES = 3  # lines of one call
_MORE = " ..."  # after the places that are shown, where there are others
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
    """Kernels as the report's counts have them, and how often they are called; then operators against calls, of the
    ways forward: only those have the program's own operators to count against."""
    forward = [call for call in calls if call.stage != "backward"]
    backward = len(calls) - len(forward)
    total = f"{count(len(explanation.kernels), 'kernel')}, {count(len(calls), 'call')}"
    compiles = {call.compile_id for call in forward}
    operators = sum(item.ops for item in explanation.graphs if item.stage == "dynamo" and item.compile_id in compiles)
    more = f"; {count(backward, 'call')} in the backward" if backward else ""
    ran = count(len(forward), "call")
    became = f": {count(operators, 'operator')} run as {ran} (uncompiled: about a launch each)" if operators else ""
    return f"{total}{became}{more}"


def _call(call: KernelCall, cwd: str | None, style: Style) -> list[str]:
    what = ", ".join(call.nodes) or "no mapping to nodes"
    head = f"{call.compile_id} {call.stage or 'graph unknown'} {call.name}: {what}"
    places = [source_location(item.file, item.line, None, cwd) for item in (call.source_lines or call.view_lines)]
    return [
        f"    {truncate_end(clean_line(head[:_LONGEST]), style.columns - 4)}",
        *(
            [f"        at {_at(places, inferred=call.evidence == 'dataflow', columns=style.columns - 11)}"]
            if places
            else []
        ),
    ]


def _at(places: Sequence[str], *, inferred: bool, columns: int) -> str:
    """The first places, as many as fit, each with its line."""
    end = ", inferred from the code" if inferred else ""
    shown = [fit_path(place, columns - len(end) - len(_MORE)) for place in places[:_PLACES]]
    while len(shown) > 1 and width(", ".join(shown)) > columns - len(end) - len(_MORE):
        del shown[-1]
    return f"{', '.join(shown)}{_MORE if len(shown) < len(places) else ''}{end}"
