"""Root causes told apart from their consequences.

torch reports a graph break once per frame, caller, layer and recompile that meets it. What a user can mend
is the site: the expression in the source and the type of break there. All reports of one site and type are
one cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dynadiag.recording.records import Break, Span
from dynadiag.recording.torch_names import original_name

__all__ = ["group_breaks", "roots"]


def group_breaks(breaks: Sequence[Break]) -> tuple[Break, ...]:
    """The breaks in their order, each `cause` ``None`` for a root or the index of its root.

    A cause that the recording already knows is kept, and led on to the root of the one it names. Functions
    that torch made to resume a split one carry the original's name.
    """
    root = _root_of_each(breaks, _leaders(breaks))
    return tuple(
        replace(
            item,
            function=original_name(item.function),
            cause=None if root[item.index] == item.index else root[item.index],
        )
        for item in breaks
    )


def roots(breaks: Sequence[Break]) -> tuple[Break, ...]:
    """The breaks that are causes of their own, fatal where torch raised one of their reports."""
    raised = {item.index if item.cause is None else item.cause for item in breaks if item.fatal}
    return tuple(replace(item, fatal=item.index in raised) for item in breaks if item.cause is None)


def _leaders(breaks: Sequence[Break]) -> dict[int, int]:
    """Index of each break -> index of the first break of the same site and type."""
    sites: dict[tuple[object, ...], list[Break]] = {}
    leaders: dict[int, int] = {}
    for item in breaks:
        met = sites.setdefault(_line_key(item), [])
        leader = next((other for other in met if _same_span(item.span, other.span)), None)
        leaders[item.index] = item.index if leader is None else leader.index
        if leader is None:
            met.append(item)
    return leaders


def _line_key(item: Break) -> tuple[object, ...]:
    """What two reports of one cause share; without a place, only torch's own words are left to go by."""
    if item.span.file is None or item.span.line is None:
        return (None, item.gb_type, original_name(item.function), item.reason)
    return (item.span.file, item.span.line, item.gb_type)


def _same_span(one: Span, other: Span) -> bool:
    """Whether two spans of one line are one site. Without columns (a foreign log) the line is all there is."""
    if one.column is None or other.column is None:
        return True
    return one.column == other.column and (
        (one.end_line, one.end_column) == (other.end_line, other.end_column)
        or one.end_column is None
        or other.end_column is None
    )


def _root_of_each(breaks: Sequence[Break], leaders: dict[int, int]) -> dict[int, int]:
    """Index of each break -> index of its root, which is its own for a root.

    A cause comes before its consequence; one that claims otherwise (a damaged recording) is not heeded, so
    the way to the root always ends.
    """
    found: dict[int, int] = {}
    for item in sorted(breaks, key=lambda item: item.index):
        ahead = item.cause if item.cause is not None and item.cause in found else leaders[item.index]
        found[item.index] = found.get(ahead, item.index)
    return found
