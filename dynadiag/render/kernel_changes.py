"""Two recordings' kernels as text: what became of each, where, what they move, and how a source differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from dynadiag.explanation.formatting import count, list_some
from dynadiag.kernels.generated_module import KernelCall
from dynadiag.kernels.kernel_diff import KernelChange, change_diff
from dynadiag.render.clean import clean, clean_line
from dynadiag.render.kernels import si_number, user_lines
from dynadiag.render.style import Style
from dynadiag.render.wrap import wrap_indented

__all__ = ["changes_text"]

_ROLES = {"-": "error", "+": "good", "@": "gutter"}
_SUMMED = ("changed", "split", "merged", "appeared", "went", "same")


def changes_text(changes: Sequence[KernelChange], style: Style) -> str:
    """What became of each kernel, with the difference of the sources where one became one."""
    different = [change for change in changes if change.kind != "same"]
    lines = [line for change in different for line in (*_change(change, style), "")]
    return "".join(f"{line}\n" for line in (*lines, _summary(changes)))


def _summary(changes: Sequence[KernelChange]) -> str:
    """``2 changed, 1 split, 5 kernels are the same in both.``"""
    kinds = Counter(change.kind for change in changes)
    same = kinds.pop("same", 0)
    told = "".join(f"{kinds[kind]} {kind}, " for kind in _SUMMED if kinds[kind])
    return f"{told}{count(same, 'kernel')} {'is' if same == 1 else 'are'} the same in both."


def _change(change: KernelChange, style: Style) -> Iterator[str]:
    stage = (change.before + change.after)[0].stage or "graph unknown"
    old, new = _moved(change.before), _moved(change.after)
    moved = (
        f", moves {si_number(old)}B, then {si_number(new)}B"
        if old is not None and new is not None and old != new
        else ""
    )
    yield f"{style.paint(change.kind, 'strong')} ({stage}{moved})"
    alone = len(change.before) == len(change.after) == 1
    for sign, those, others in (("-", change.before, change.after), ("+", change.after, change.before)):
        for call in those:
            yield style.paint(f"{sign} {clean_line(call.name)}", _ROLES[sign])
            yield from wrap_indented("    ", _kernel(call, others if alone else ()), style.columns)
    if alone:
        yield from _source(change, style)


def _moved(calls: Sequence[KernelCall]) -> int | None:
    """The bytes that kernels move together; None where that is not known of all, or there are none."""
    known = [call.cost.bytes_moved for call in calls if call.cost.bytes_moved is not None]
    return sum(known) if known and len(known) == len(calls) else None


def _kernel(call: KernelCall, others: Sequence[KernelCall]) -> str:
    """The operators and lines of a kernel, and those that the others do not have."""
    known = {part for other in others for part in other.operator_lines}
    own = tuple(dict.fromkeys(operator for operator, code in call.operator_lines if (operator, code) not in known))
    where = user_lines(call.source_lines or call.view_lines)
    only = f"; only here: {list_some(own)}" if others and own else ""
    what = f"{list_some(call.ops) or 'no mapping'}{' at ' if where else ''}{where}"
    return f"{what}; moves {si_number(call.cost.bytes_moved)}B{only}"


def _source(change: KernelChange, style: Style) -> Iterator[str]:
    """The values of a kernel are numbered in order: what only has another number is shown as it is now."""
    for line in clean(change_diff(change)).splitlines()[2:]:  # the names stand above
        yield style.paint(line, _ROLES.get(line[:1], ""))
