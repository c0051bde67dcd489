"""Two sections of a report: the kernel calls of the generated code, and CUDA graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dynadiag.explanation.cuda_graphs import CudaGraph
from dynadiag.explanation.explanation import Explanation
from dynadiag.explanation.formatting import count
from dynadiag.render.clean import clean_line
from dynadiag.render.components import help_lines, labelled_lines
from dynadiag.render.paths import fit_path, source_location
from dynadiag.render.style import Style
from dynadiag.render.wrap import truncate_end, width, wrap_indented

if TYPE_CHECKING:
    from dynadiag.kernels.generated_module import KernelCall

__all__ = ["cuda_graphs_section", "launches_section"]

_MAX_CALLS = 5  # calls that are shown without --all
_MAX_PLACES = 3  # lines of one call
_MORE = " ..."  # after the places that are shown, where there are others
_MAX_CALL = 2000  # characters of a call that are looked at: more than any terminal shows
_MAX_SHOWN = 5  # CUDA graphs that were skipped or recorded again, without --all
_MAX_REASON = 300  # characters of a reason
_AGAIN = (
    "Code is recorded again for each new size, for inputs at new addresses, and for each way through the program that "
    "leads to it; TORCH_LOGS=+cudagraphs prints which it was."
)


def launches_section(explanation: Explanation, calls: Sequence[KernelCall], style: Style, all_: bool) -> list[str]:
    """The calls with their nodes and source lines, those that move the most bytes first."""
    if not calls:
        return []
    ranked = sorted(calls, key=lambda call: -(call.cost.bytes_moved or 0))
    shown = ranked if all_ else ranked[:_MAX_CALLS]
    lines = labelled_lines("kernels", "strong", _totals(explanation, calls), style)
    for call in shown:
        lines += _call(call, explanation.run.cwd, style)
    hidden = len(ranked) - len(shown)
    if hidden:
        lines.append(style.paint(f"    ... and {count(hidden, 'more call')}; `dynadiag kernels` lists them", "dim"))
    return [*lines, ""]


def _totals(explanation: Explanation, calls: Sequence[KernelCall]) -> str:
    """How many kernels and calls there are, and how many operators of the program the calls stand for.

    Calls of a backward are counted apart: its operators are autograd's, not the program's.
    """
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
        f"    {truncate_end(clean_line(head[:_MAX_CALL]), style.columns - 4)}",
        *(
            [f"        at {_at(places, inferred=call.evidence == 'dataflow', columns=style.columns - 11)}"]
            if places
            else []
        ),
    ]


def _at(places: Sequence[str], *, inferred: bool, columns: int) -> str:
    """The first places, as many as fit, each with its line."""
    end = ", inferred from the code" if inferred else ""
    shown = [fit_path(place, columns - len(end) - len(_MORE)) for place in places[:_MAX_PLACES]]
    while len(shown) > 1 and width(", ".join(shown)) > columns - len(end) - len(_MORE):
        del shown[-1]
    return f"{', '.join(shown)}{_MORE if len(shown) < len(places) else ''}{end}"


def cuda_graphs_section(explanation: Explanation, style: Style, all_: bool) -> list[str]:
    """The counts, then a line for each skipped CUDA graph, and for each code that was recorded more than once."""
    found = explanation.cuda_graphs
    if not found:
        return []
    again = Counter((item.compile_id, item.backward) for item in found if item.what == "re-recorded")
    lines = labelled_lines("cuda graphs", "strong", _cuda_graph_counts(found), style)
    texts = [_skipped(item, explanation.run.cwd) for item in found if item.what == "skipped"]
    texts += [f"{_code_name(*code)} recorded {count(times + 1, 'time')}" for code, times in again.items()]
    for text in texts if all_ else texts[:_MAX_SHOWN]:
        lines += wrap_indented("    ", text, style.columns)
    if not all_ and len(texts) > _MAX_SHOWN:
        lines.append(style.paint(f"    ... and {len(texts) - _MAX_SHOWN} more; --all shows them", "dim"))
    return [*lines, *(help_lines(_AGAIN, style) if again else ()), ""]


def _cuda_graph_counts(found: Sequence[CudaGraph]) -> str:
    """``3 recorded in 0.41 s, 1 of them again; 2 skipped``."""
    recorded = [item for item in found if item.what != "skipped"]
    again, skipped = sum(item.what == "re-recorded" for item in recorded), len(found) - len(recorded)
    seconds = sum(item.seconds or 0.0 for item in recorded)
    parts = [f"{len(recorded)} recorded in {seconds:.2f} s" + (f", {again} of them again" if again else "")]
    return "; ".join((parts if recorded else []) + ([f"{skipped} skipped"] if skipped else []))


def _skipped(item: CudaGraph, cwd: str | None) -> str:
    """``0/0 backward skipped: mutated inputs (1 instances), at prog.py:7``."""
    at = f", at {source_location(item.file, item.line, None, cwd)}" if item.file else ""
    return f"{_code_name(item.compile_id, item.backward)} skipped: {clean_line((item.reason or '')[:_MAX_REASON])}{at}"


def _code_name(compile_id: str, backward: bool | None) -> str:
    named = "code of a compile that torch did not name" if compile_id == "-" else clean_line(compile_id)
    return f"{named} backward" if backward else named
