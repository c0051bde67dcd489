"""Graph breaks and recompiles that only one of two runs has."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

from dynadiag.diff.difference import Difference
from dynadiag.explanation.breaks import group_breaks, roots
from dynadiag.explanation.formatting import brief
from dynadiag.explanation.guards import complete, parse_guard
from dynadiag.explanation.identity import place_text
from dynadiag.explanation.registry import Registry
from dynadiag.recording.code_origin import original_name
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Break, GuardFailure, Recompile

__all__ = ["break_differences", "recompile_differences"]

_MAX_GUARD = 80  # characters of a guard in a sentence

T = TypeVar("T")


def break_differences(before: Recording, after: Recording, ids: Mapping[str, str]) -> list[Difference]:
    """Return the root causes of graph breaks that only one run has. `ids` leads from the second run's compiles to the
    first's."""
    registry = Registry.installed()
    sides = [roots(group_breaks([registry.complete(item) for item in side.breaks()])) for side in (before, after)]
    texts = {
        item: place_text(_source(side, item), item.span)
        for side, items in zip((before, after), sides, strict=True)
        for item in items
    }

    def kind(item: Break) -> str:
        return item.gb_id or item.gb_type

    gone, new = _unmatched(
        sides[0],
        sides[1],
        lambda item: (kind(item), item.function, texts[item]),
        lambda item: (kind(item), texts[item]) if texts[item] else (kind(item), item.function),
    )
    back = {old: now for now, old in ids.items()}
    return [
        *(_break(item, "a new graph break", (ids.get(item.compile_id), item.compile_id)) for item in new),
        *(_gone(item, (item.compile_id, back.get(item.compile_id))) for item in gone),
    ]


def _source(recording: Recording, item: Break) -> str | None:
    return recording.source(item.span.file) if item.span.file else None


def _break(item: Break, what: str, ids: tuple[str | None, str | None]) -> Difference:
    id_ = f" {item.gb_id}" if item.gb_id else ""
    return Difference("break", ids, item.span.file, item.span.line, f"{what}{id_} in {item.function}: {item.gb_type}")


def _gone(item: Break, ids: tuple[str | None, str | None]) -> Difference:
    told = _break(item, "the graph break", ids)
    return Difference("break", ids, None, None, f"{told.text}, at line {item.span.line} of the first run, is gone")


def recompile_differences(before: Recording, after: Recording, ids: Mapping[str, str]) -> list[Difference]:
    """Return the recompiles that only one run has."""
    gone, new = _unmatched(before.recompiles(), after.recompiles(), _recompile_key, _recompile_values)
    back = {old: now for now, old in ids.items()}
    return [
        *(_recompile(item, "a new recompile", (ids.get(item.compile_id), item.compile_id), item.line) for item in new),
        *(
            _recompile(item, "no longer a recompile", (item.compile_id, back.get(item.compile_id)), None)
            for item in gone
        ),
    ]


def _recompile(item: Recompile, what: str, ids: tuple[str | None, str | None], line: int | None) -> Difference:
    reasons = [complete(reason) for reason in item.reasons]
    place = next(((reason.file, reason.line) for reason in reasons if line is not None and reason.line), None)
    file, line = place or ((item.file, line) if line is not None else (None, None))
    why = "; ".join(_reason(reason) for reason in reasons[:1]) or "torch gave no reason"
    limit = ", and the recompile limit is reached" if item.limit_reached else ""
    return Difference("recompile", ids, file, line, f"{what} of {original_name(item.function)}: {why}{limit}")


def _reason(reason: GuardFailure) -> str:
    if reason.source and reason.was is not None and reason.now is not None:
        return f"{reason.source} was {brief(reason.was)}, then {brief(reason.now)}"
    return f"the guard {brief(reason.guard, _MAX_GUARD)} failed"


def _recompile_key(item: Recompile) -> Hashable:
    reasons = [complete(reason) for reason in item.reasons]
    return original_name(item.function), item.limit_reached, frozenset((r.source, r.was, r.now) for r in reasons)


def _recompile_values(item: Recompile) -> Hashable:
    """A recompile without the names of the function and of what changed."""
    readings = [parse_guard(reason) for reason in item.reasons]
    return item.limit_reached, frozenset((r.kind, r.index, r.was, r.now) for r in readings)


def _unmatched(
    before: Sequence[T], after: Sequence[T], *keys: Callable[[T], Hashable]
) -> tuple[Sequence[T], Sequence[T]]:
    """The items of each side that have no partner of the same key on the other, by each key in turn."""
    for key in keys:
        waiting: dict[Hashable, deque[T]] = defaultdict(deque)
        for item in before:
            waiting[key(item)].append(item)
        left = []
        for item in after:
            if waiting[key(item)]:
                waiting[key(item)].popleft()
            else:
                left.append(item)
        kept = {id(item) for items in waiting.values() for item in items}
        before, after = [item for item in before if id(item) in kept], left
    return before, after
