"""What changed at a recompile, out of the guards that failed.

torch asks the cached entries one after the other and each answers for itself: after eight variants one size that
changed again fails eight guards on the size and as many on the strides. To a reader that is one change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod

from dynadiag.explanation.guards import ParsedGuard, parse_guard
from dynadiag.explanation.process_state import explains_dispatch
from dynadiag.recording.records import GuardFailure, Recompile

__all__ = [
    "GuardChange",
    "by_frequency",
    "changes",
    "explaining_kinds",
    "fingerprint",
    "main_changes",
    "nearest_entry_failures",
    "own_failures",
    "without_consequences",
]

_EXPLAINS_OTHERS = ("first_call", "race")  # kinds of failures that all others of a recompile may follow from
_OF_MODULE = "L['self']."
_MODULE_OF_TORCH = "__import_torch_dot_"  # what torch calls its own modules in guards
_MOST_SIZES = 8  # of one tensor that are tried as factors of a stride: 255 products


@dataclass(frozen=True, slots=True)
class GuardChange:
    """One thing that changed, and every cached entry that it kept from being used, the newest first."""

    parsed: ParsedGuard
    guard: str
    source: str | None
    was: tuple[str, ...]  # each value once
    now: str | None
    against: tuple[str, ...]
    file: str | None
    line: int | None


def main_changes(reasons: Sequence[GuardFailure]) -> tuple[GuardChange, ...]:
    """What changed at a recompile, the most telling first, without what follows from that or tells other entries
    apart.
    """
    return changes(own_failures(reasons))


def own_failures(reasons: Sequence[GuardFailure]) -> tuple[GuardFailure, ...]:
    """The failures without those that follow from others, of the entries that came nearest to being used.

    Consequences go first. torch names one difference of a tensor for each entry, such as the dispatch keys where
    autocast changed, the size where that differs too: such an entry came no nearer than one without it.
    """
    return nearest_entry_failures(without_consequences(reasons))


def by_frequency(recompiles: Sequence[Recompile]) -> Iterator[Recompile]:
    """The recompiles; where torch gave up, what most of the function's recompiles failed by stands first.

    That used up the limit. What the last call failed by beside it may have changed once.
    """
    failed = Counter(
        (item.file, item.line, item.function, source)
        for item in recompiles
        for source in {reason.source for reason in item.reasons}
    )
    for item in recompiles:
        often = sorted(item.reasons, key=lambda each: -failed[item.file, item.line, item.function, each.source])
        yield replace(item, reasons=tuple(often)) if item.limit_reached else item


def changes(reasons: Sequence[GuardFailure]) -> tuple[GuardChange, ...]:
    """Each change said once, whatever the number of entries that it failed; one that explains the others first."""
    found: dict[tuple[object, ...], list[GuardFailure]] = {}
    for reason in reasons:
        found.setdefault(_key(reason), []).append(reason)
    merged = [_merge(same) for same in found.values()]
    first = explaining_kinds([change.parsed for change in merged])
    return tuple(sorted(merged, key=lambda each: _rank(each.parsed.kind, first)))


def _rank(kind: str, explaining: Sequence[str]) -> int:
    """The order of a kind: 0 if it explains the other failures, 2 if it does so in other recompiles only, else 1."""
    return 0 if kind in explaining else 2 if kind in _EXPLAINS_OTHERS else 1


def explaining_kinds(failures: Sequence[ParsedGuard]) -> tuple[str, ...]:
    """The kinds of failures that all others of a recompile follow from.

    What the first call sets explains nothing where an attribute of the module changed that is no part of it: then the
    code is called for another module, such as the next layer with the same cache.
    """
    kinds = {each.kind for each in failures}
    owners = [(each.subject or "").rpartition(".")[0] for each in failures if each.kind == "first_call"]
    moved = any(
        each.kind in ("value", "presence", "type")
        and (each.subject or "").startswith(_OF_MODULE)
        and not any(owner and (each.subject or "").startswith(owner) for owner in owners)
        for each in failures
    )
    return tuple(kind for kind in _EXPLAINS_OTHERS if kind in kinds and not (kind == "first_call" and moved))


def fingerprint(reasons: Sequence[GuardFailure]) -> frozenset[tuple[str, ...]]:
    """What changed from what to what, whatever each function calls it: one size that changed is `x`, `y`, `hidden` in
    the functions that it goes through. Empty where that cannot be told: a condition, a value that is not known.

    True and False are too common for that: of those the last part of the name counts (``training``).
    """
    each = main_changes(reasons)
    if any(not change.was or change.now is None or change.parsed.is_condition for change in each):
        return frozenset()
    return frozenset((change.parsed.kind, _flag(change), *change.was, change.now or "") for change in each)


def _flag(change: GuardChange) -> str:
    return (change.source or "").rpartition(".")[2] if change.now in ("True", "False") else ""


def _key(reason: GuardFailure) -> tuple[object, ...]:
    reading = parse_guard(reason)
    named = reason.source is not None and reason.now is not None and not reading.is_condition
    return (reading.kind, reason.source, reason.now, reason.file, reason.line, None if named else reason.guard)


def _merge(same: Sequence[GuardFailure]) -> GuardChange:
    first = same[0]
    return GuardChange(
        parsed=parse_guard(first),
        guard=first.guard,
        source=first.source,
        was=tuple(dict.fromkeys(item.was for item in same if item.was is not None)),
        now=first.now,
        against=tuple(dict.fromkeys(item.against for item in same)),
        file=first.file,
        line=first.line,
    )


def without_consequences(reasons: Sequence[GuardFailure]) -> tuple[GuardFailure, ...]:
    """The failures without those that follow from others of the same cached entry.

    In a tensor without gaps a stride is a product of sizes, so it grows as they do. A mode (inference mode, autocast)
    changes what tensors dispatch to; the default device is a torch function mode too, and a mode's value is a global of
    torch. What is of another type, or None now, has other parts and is another object; another object is not the one
    that it was compared with; a set that an item was looked up in is another set.
    """
    readings = [parse_guard(reason) for reason in reasons]
    sizes: dict[tuple[str | None, str], list[tuple[int, int]]] = {}
    states: dict[str, list[ParsedGuard]] = {}
    for reason, reading in zip(reasons, readings, strict=True):
        if reading.kind == "size" and (pair := _numbers(reading)):
            sizes.setdefault((reading.subject, reason.against), []).append(pair)
        elif reading.kind == "global_state":
            states.setdefault(reason.against, []).append(reading)
    return tuple(
        reason
        for reason, reading in zip(reasons, readings, strict=True)
        if not (
            _follows(reading, sizes.get((reading.subject, reason.against), []))
            if reading.kind == "stride"
            else any(_is_of_state(reading, state) for state in states.get(reason.against, ()))
            or any(
                _is_part(reason, reading, other)
                for cause, other in zip(reasons, readings, strict=True)
                if cause.against == reason.against and cause is not reason
            )
        )
    )


def _is_part(reason: GuardFailure, reading: ParsedGuard, other: ParsedGuard) -> bool:
    """Whether a failure follows from that of a whole that is another now."""
    whole, part = other.subject or "", reason.source or reading.subject or ""
    if not whole or (reading.kind in ("type", "none") and reading.subject == whole):
        return False
    if other.kind == "identity" and reading.kind == "alias":
        return whole in (reason.guard or "")
    if other.kind == "membership":
        return reading.kind == "value" and reading.subject == whole
    if other.kind == "length":
        return reading.kind == "presence" and part.startswith(f"{whole}[")
    if other.kind not in ("type", "none"):
        return False
    inside = part.startswith((f"{whole}.", f"{whole}[")) and reading.subject != whole
    return inside or f"type({whole})" in part or (reading.kind == "alias" and part == whole)


def _is_of_state(reading: ParsedGuard, state: ParsedGuard) -> bool:
    """Whether a failure follows from a change of the process's state."""
    if reading.kind == "dispatch_keys":
        return explains_dispatch(state, reading)
    if reading.index == "torch function modes":
        return state.index == "default device"
    return _MODULE_OF_TORCH in (reading.subject or "")


def _follows(stride: ParsedGuard, sizes: Sequence[tuple[int, int]]) -> bool:
    """Whether a stride changed by the same factor as some of the sizes together."""
    pair = _numbers(stride)
    if pair is None:
        return False
    was, now = pair
    return any(was * prod(b for _, b in some) == now * prod(a for a, _ in some) for some in _subsets(sizes))


def _subsets(sizes: Sequence[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], ...]]:
    few = sizes[:_MOST_SIZES]
    for number in range(1, len(few) + 1):
        yield from combinations(few, number)


def _numbers(reading: ParsedGuard) -> tuple[int, int] | None:
    """Old and new value; a size of 0 counts as 1, as torch counts it for strides."""
    if not ((reading.was or "").isdecimal() and (reading.now or "").isdecimal()):
        return None
    was, now = (max(int(text[:20]), 1) for text in (reading.was or "", reading.now or ""))
    return was, now


def nearest_entry_failures(reasons: Sequence[GuardFailure]) -> tuple[GuardFailure, ...]:
    """The failures of the entries that came nearest to being used.

    Where one entry failed by the size alone and another by the size and the dtype, the dtype is not why anything was
    compiled: the first entry has it.
    """
    failed: dict[str, set[tuple[object, ...]]] = {}
    for reason in reasons:
        reading = parse_guard(reason)
        failed.setdefault(reason.against, set()).add((reading.kind, reading.subject, reading.index))
    raced = {entry for entry, what in failed.items() if {kind for kind, *_ in what} == {"race"}}  # it fits by now
    kept = raced or {entry for entry, what in failed.items() if not any(other < what for other in failed.values())}
    return tuple(reason for reason in reasons if reason.against in kept)
