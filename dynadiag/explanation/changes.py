"""What changed at a recompile, out of the guards that failed.

torch asks the cached entries one after the other and each answers for itself: after eight variants one size that
changed again fails eight guards on the size and as many on the strides. To a reader that is one change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from math import prod

from dynadiag.explanation.process_state import explains_dispatch
from dynadiag.recording.records import GuardFailure, Recompile
from dynadiag.recording.torch_text.sources import (
    MODULE_OF_TORCH,
    ends_in_attribute,
    hooked_module,
    last_name,
    numbered_items,
)

_OF_CONDITIONS = ("shape", "size", "value")  # sorts of failures that a condition and its terms have
_EXPLAINS_OTHERS = ("first call", "race")  # kinds of failures that all others of a recompile may follow from
HELD_IN = ("_buffers", "_parameters", "_modules")  # where a module keeps such attributes
_OF_MODULE = "L['self']."
# What a lazy module or a cache sets in its first call.
_SET_BY_FIRST_CALL = [f"{lead}initiali{letter}ed" for lead in ("", "is_", "_", "_is_") for letter in "sz"]
_MOST_SIZES = 8  # of one tensor that are tried as factors of a stride: 255 products


@dataclass(frozen=True, slots=True)
class GuardChange:
    """One thing that changed, and every cached entry that it kept from being used, the newest first.

    ``fact`` is the failure of the newest.
    """

    fact: GuardFailure
    was: tuple[str, ...]  # each value once
    against: tuple[str, ...]

    @property
    def sort(self) -> str:
        """The sort of the failure (`sort_of`)."""
        return sort_of(self.fact)


def sort_of(failure: GuardFailure) -> str:
    """The part that changed, or what that amounts to: "none" (something came or went), "first call" (what the first
    call sets), "left over" (a value from before a graph break).
    """
    if failure.base == "before break" and failure.part in ("value", "shape"):
        return "left over"
    if failure.part == "value" and failure.now == "True" and last_name(failure.subject) in _SET_BY_FIRST_CALL:
        return "first call"
    return "none" if failure.part in ("value", "type", "identity") and failure.is_about_none else failure.part


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
    first = explaining_sorts([change.fact for change in merged])
    return tuple(sorted(merged, key=lambda change: _rank(change.sort, first)))


def causes(own: Sequence[GuardChange]) -> tuple[tuple[GuardChange, ...], ...]:
    """The changes by what they have in common, in order: those that are one change of the program's stand together.

    A sequence length is in three tensors and in eleven of a mask: sizes that grew by the same factor are one cause, and
    so is an integer that changed from and to the same number as a size. So are conditions on the same sizes or numbers,
    and these where an older entry was made for one of each; the layout of a tensor, with its sizes where these changed
    too; what is in a container whose length or keys changed; what all follows from the first call; one dtype, device or
    flag of several tensors.
    """
    explaining = explaining_sorts([change.fact for change in own])
    containers = [change.fact for change in own if change.sort in ("length", "keys") and not change.fact.index]
    default_dtype = any(change.fact.index == "default_dtype" for change in own)
    sizes = [change.fact for change in own if change.sort == "size"]
    together: dict[object, list[GuardChange]] = {}
    for change in own:
        key: tuple[object, ...] = _cause(change.fact)
        if explaining:
            key = ("explained",)
        elif default_dtype and change.sort == "dtype":
            key = _DEFAULT_DTYPE
        elif change.sort in ("value", "presence", "type", "none", "size", "length", "keys"):
            subject = change.fact.subject or ""
            key = next((_cause(each) for each in containers if _is_in(change.fact, subject, each)), key)
        key = next((_cause(size) for size in sizes if _goes_with(change.fact, size)), key)
        together.setdefault(key, []).append(change)
    return tuple(map(tuple, _merged_by_size(list(together.values()))))


def _is_in(fact: GuardFailure, subject: str, container: GuardFailure) -> bool:
    """Whether a failure is of an item, where a container has more or fewer: of a dict only one that came or went."""
    kept_apart = sort_of(fact) == "value" and subject.startswith(f"{container.subject}['")
    return subject.startswith(f"{container.subject}[") and not kept_apart


_DEFAULT_DTYPE = ("state", "default_dtype", ())


def _goes_with(fact: GuardFailure, size: GuardFailure) -> bool:
    """Whether a failure is told with a size that changed: the layout of its tensor, or an integer that it is too."""
    if fact.part == "stride":
        return fact.subject == size.subject
    is_number = sort_of(fact) == "value" and fact.was_type == "int" and not {fact.was, fact.now} & {"0", "1"}
    return is_number and (fact.was, fact.now) == (size.was, size.now)


def _cause(fact: GuardFailure) -> tuple[object, ...]:
    """What the failures of one cause have in common."""
    if fact.part == "size":
        pair = _numbers(fact)
        if pair is None:
            return "size", fact.subject
        special = not {fact.was, fact.now}.isdisjoint(("0", "1"))
        return ("size", fact.was, fact.now) if special else ("size", Fraction(pair[1], pair[0]))
    if fact.part == "shape":
        return "shape", fact.terms
    if fact.part == "stride":
        return "stride", fact.subject
    if fact.part in ("dtype", "device", "requires_grad", "rank"):
        return fact.part, fact.base == "parameter", fact.was, fact.now
    if fact.part == "dispatch keys":
        return fact.part, fact.was, fact.now
    if fact.part == "state":
        return "state", fact.index, fact.terms
    if (module := hooked_module(fact.subject)) is not None:
        return "hooks", numbered_items(module)
    if fact.part in ("length", "keys"):
        return "in", numbered_items(fact.subject) if ends_in_attribute(fact.subject) else fact.subject
    if fact.part == "freed" and (subject := fact.subject or "").startswith("type("):
        return "class", subject.removeprefix("type(").removesuffix(")")
    if fact.part == "type" and fact.was_type == fact.now_type:
        return "class", fact.subject
    if fact.part in ("value", "presence", "type", "identity", "freed"):
        return sort_of(fact), numbered_items(fact.subject), fact.was_type
    return sort_of(fact), fact.subject, fact.index


def _merged_by_size(groups: list[list[GuardChange]]) -> list[list[GuardChange]]:
    """The groups, of those on conditions, sizes and numbers each joined with the first that has one of its sizes or
    numbers, or a size that changed from and to the same number against an older entry."""
    kept: list[tuple[list[GuardChange], set[str]]] = []
    for group in groups:
        sizes = {term for change in group for term in (change.fact.terms or (change.fact.source or "",))}
        sizes |= {f"{was} to {change.fact.now}" for change in group if change.sort == "size" for was in change.was}
        on_sizes = group[0].sort in _OF_CONDITIONS
        other = next(
            (each for each in kept if on_sizes and each[0][0].sort in _OF_CONDITIONS and each[1] & sizes), None
        )
        if other is None:
            kept.append((group, sizes))
        else:
            other[0].extend(group)
            other[1].update(sizes)
    return [sorted(group, key=lambda change: _telling(change, group)) for group, _ in kept]


def _telling(change: GuardChange, group: Sequence[GuardChange]) -> int:
    """The order in a cause: parameters, sizes 0 and 1, what others are in; then conditions, of the newest entry. What
    only goes with a size or a condition stands last."""
    if change.sort == "stride" or (change.sort == "value" and any(other.sort in ("shape", "size") for other in group)):
        return 3
    if change.sort == "size" and change.fact.base == "parameter":
        return -1  # a buffer of the same module has its shape
    if change.sort == "size" and (change.fact.is_of_parameter or {change.fact.was, change.fact.now} & {"0", "1"}):
        return 0
    if change.sort in ("length", "state", *_EXPLAINS_OTHERS):
        return 0
    return 1 if change.sort != "size" or all(other.sort == "size" for other in group) else 2


def _rank(sort: str, explaining: Sequence[str]) -> int:
    """The order of a sort: 0 if it explains the other failures, 2 if it does so in other recompiles only, else 1."""
    return 0 if sort in explaining else 2 if sort in _EXPLAINS_OTHERS else 1


def explaining_sorts(failures: Sequence[GuardFailure]) -> tuple[str, ...]:
    """The sorts of failures that all others of a recompile follow from.

    What the first call sets explains nothing where an attribute of the module changed that is no part of it: then the
    code is called for another module, such as the next layer with the same cache.
    """
    sorts = {sort_of(failure) for failure in failures}
    owners = [(each.subject or "").rpartition(".")[0] for each in failures if sort_of(each) == "first call"]
    moved = any(
        sort_of(each) in ("value", "presence", "type")
        and (each.subject or "").startswith(_OF_MODULE)
        and not any(owner and (each.subject or "").startswith(owner) for owner in owners)
        for each in failures
    )
    return tuple(sort for sort in _EXPLAINS_OTHERS if sort in sorts and not (sort == "first call" and moved))


def fingerprint(reasons: Sequence[GuardFailure]) -> frozenset[tuple[str, ...]]:
    """What changed from what to what, whatever each function calls it: one size that changed is `x`, `y`, `hidden` in
    the functions that it goes through. Empty where that cannot be told: a condition, a value that is not known.

    True and False are too common for that: of those the last part of the name counts (``training``).
    """
    each = main_changes(reasons)
    if any(not change.was or change.fact.now is None or change.fact.is_condition for change in each):
        return frozenset()
    return frozenset((change.sort, _flag(change.fact), *change.was, change.fact.now or "") for change in each)


def _flag(fact: GuardFailure) -> str:
    return last_name(fact.source) or "" if fact.now in ("True", "False") else ""


def _key(reason: GuardFailure) -> tuple[object, ...]:
    named = reason.source is not None and reason.now is not None and not reason.is_condition
    return (sort_of(reason), reason.source, reason.now, reason.file, reason.line, None if named else reason.guard)


def _merge(same: Sequence[GuardFailure]) -> GuardChange:
    return GuardChange(
        fact=same[0],
        was=tuple(dict.fromkeys(item.was for item in same if item.was is not None)),
        against=tuple(dict.fromkeys(item.against for item in same)),
    )


def without_consequences(reasons: Sequence[GuardFailure]) -> tuple[GuardFailure, ...]:
    """The failures without those that follow from others of the same cached entry.

    In a tensor without gaps a stride is a product of sizes, so it grows as they do. A mode (inference mode, autocast)
    changes what tensors dispatch to; the default device is a torch function mode too, and a mode's value is a global of
    torch. What is of another type, or None now, has other parts and is another object; another object is not the one
    that it was compared with; a set that an item was looked up in is another set.
    """
    sizes: dict[tuple[str | None, str], list[tuple[int, int]]] = {}
    states: dict[str, list[GuardFailure]] = {}
    entries: dict[str, list[GuardFailure]] = {}
    for reason in reasons:
        entries.setdefault(reason.against, []).append(reason)
        if reason.part == "size" and (pair := _numbers(reason)):
            sizes.setdefault((reason.subject, reason.against), []).append(pair)
        elif reason.part == "state":
            states.setdefault(reason.against, []).append(reason)
    return tuple(
        reason
        for reason in reasons
        if not (
            _follows(reason, sizes.get((reason.subject, reason.against), []))
            if reason.part == "stride"
            else any(_is_of_state(reason, state) for state in states.get(reason.against, ()))
            or any(_is_part(reason, cause) for cause in entries[reason.against] if cause is not reason)
        )
    )


def _is_part(failure: GuardFailure, other: GuardFailure) -> bool:
    """Whether a failure follows from that of a whole that is another now."""
    whole, part = other.subject or "", failure.source or failure.subject or ""
    if not whole or (sort_of(failure) in ("type", "none") and failure.subject == whole):
        return False
    if failure.part == "shape" and ".stride()[" in failure.guard:
        return other.part in ("size", "rank") and other.subject == failure.subject
    if part.startswith(f"{whole}.") and (other.part == "value" or part.endswith(".__self__")):
        return True  # an attribute of a constant, such as a member of an enum; of a bound method: the object itself
    if other.part == "identity" and failure.part == "alias":
        return whole in failure.guard
    if other.part == "membership":
        return failure.part == "value" and failure.subject == whole
    if other.part == "presence" and failure.part == "length":
        return failure.subject in [f"{whole.rpartition('.')[0]}.{held}" for held in HELD_IN]
    if other.part == "length":
        return failure.part == "presence" and part.startswith(f"{whole}[")
    if sort_of(other) not in ("type", "none"):
        return False
    inside = part.startswith((f"{whole}.", f"{whole}[")) and failure.subject != whole
    return inside or f"type({whole})" in part or (failure.part == "alias" and part == whole)


def _is_of_state(failure: GuardFailure, state: GuardFailure) -> bool:
    """Whether a failure follows from a change of the process's state."""
    if failure.part == "dispatch keys":
        return explains_dispatch(state, failure)
    if failure.index == "torch function modes":
        return state.index == "default device"
    return MODULE_OF_TORCH in (failure.subject or "")


def _follows(stride: GuardFailure, sizes: Sequence[tuple[int, int]]) -> bool:
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


def _numbers(failure: GuardFailure) -> tuple[int, int] | None:
    """Old and new value; a size of 0 counts as 1, as torch counts it for strides."""
    if not ((failure.was or "").isdecimal() and (failure.now or "").isdecimal()):
        return None
    was, now = (max(int(text[:20]), 1) for text in (failure.was or "", failure.now or ""))
    return was, now


def nearest_entry_failures(reasons: Sequence[GuardFailure]) -> tuple[GuardFailure, ...]:
    """The failures of the entries that came nearest to being used.

    Where one entry failed by the size alone and another by the size and the dtype, the dtype is not why anything was
    compiled: the first entry has it. So it is with an entry that another ``torch.compile`` alone keeps from being used.
    """
    failed: dict[str, set[tuple[object, ...]]] = {}
    for reason in reasons:
        what = (sort_of(reason), reason.subject, reason.guard if reason.is_condition else reason.index)
        failed.setdefault(reason.against, set()).add(what)
    alone = {entry: {sort for sort, *_ in what} for entry, what in failed.items()}
    raced = {entry for entry, sorts in alone.items() if sorts == {"race"}}  # it fits by now
    compiled_by_others = {entry for entry, sorts in alone.items() if sorts == {"backend"}}
    kept = raced or compiled_by_others
    distinct = {frozenset(what) for what in failed.values()}
    kept = kept or {entry for entry, what in failed.items() if not any(other < what for other in distinct)}
    return tuple(reason for reason in reasons if reason.against in kept)
