"""Advice for recompiles: what would have kept the compiled code usable.

torch compiles code for what it saw, and again when a guard on that fails. Whether that is a waste depends on what
changed: a size can be a symbol, a dtype cannot. What is said here of torch was tried on, or
read in the source of, torch 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from dynadiag.explanation import advice_tensors, advice_values, process_state
from dynadiag.explanation.advice_table import advice
from dynadiag.explanation.changes import explaining_kinds, own_failures
from dynadiag.explanation.findings import Advice
from dynadiag.explanation.guard_text import ARGUMENTS, joined_sources, root_name, sizes_in
from dynadiag.explanation.guards import ParsedGuard, parse_guard
from dynadiag.recording.records import GuardFailure, Recompile

__all__ = ["advise", "is_from_before_break"]

_FROM_BEFORE_BREAK = {
    "size": "computed_size",
    "shape": "computed_size",
    "value": "left_over",
}  # the kind of a guard on what was computed there
_ON_STACK = "___stack"  # torch's names of values without one, which are on the stack at a break
_WRAPPED = ("L['fn']", "L['partial']", "L['self']")  # what stands for it in a guard
_LOWER_BOUND = re.compile(r"2 <= |\S+ >= 2$")  # that a size is neither 0 nor 1


def advise(
    recompile: Recompile, computed: Collection[str] = (), changing: Collection[str | None] = ()
) -> tuple[Advice, ...]:
    """What to do about one recompile, most useful first, each said once.

    Only the cached entries that came nearest to being used count: what else the others failed by made no difference.
    ``computed`` has the names of values that the function computed before it was split at a break: no caller can mark
    their sizes, so advice on them comes last. ``changing`` has the sources that keep changing: for such a list it
    does not matter that it was empty at first, and such a number stays a constant.
    """
    limit = (advice("recompile.gave_up"), advice("recompile.limit")) if recompile.limit_reached else ()
    if not recompile.reasons:
        return (*limit, advice("recompile.no_reason"))
    if any(map(_is_another_callable, recompile.reasons)):
        return (*limit, advice("recompile.shared_wrapper"))
    kinds: dict[str, list[ParsedGuard]] = {}
    found: Iterator[ParsedGuard] = map(parse_guard, own_failures(recompile.reasons))
    found = (replace(each, goes_on=each.subject in changing) for each in found)
    for reading in sorted(found, key=lambda each: is_from_before_break(each, computed)):
        kinds.setdefault(_kind(reading, computed), []).append(reading)
    given = [each for kind, found in _causes(kinds).items() for each in _ADVICE.get(kind, _other)(found)]
    return tuple(dict.fromkeys((*limit, *given)))


def is_from_before_break(reading: ParsedGuard, computed: Collection[str]) -> bool:
    """Whether a guard is on a size or a value that the function had computed before it was split at a break."""
    return _kind(reading, computed) in _FROM_BEFORE_BREAK.values()


def _kind(reading: ParsedGuard, computed: Collection[str]) -> str:
    sizes = sizes_in(reading.index or "") if reading.kind == "shape" else ()
    roots = {root_name(source) or "" for source in sizes or (reading.subject,)}
    if all(root.startswith(_ON_STACK) for root in roots):
        return _FROM_BEFORE_BREAK.get(reading.kind, "left_over")
    return _FROM_BEFORE_BREAK.get(reading.kind, reading.kind) if roots <= {*computed} else reading.kind


def _is_another_callable(reason: GuardFailure) -> bool:
    """Whether the guard is on what torch's own wrapper (``wrap_inline``, external_utils.py) was put around."""
    of_wrapper = reason.file is not None and reason.file.endswith("/torch/_dynamo/external_utils.py")
    reading = parse_guard(reason)
    return of_wrapper and reading.kind in ("type", "identity") and (reading.subject or "").startswith(_WRAPPED)


def _causes(kinds: dict[str, list[ParsedGuard]]) -> dict[str, list[ParsedGuard]]:
    """The kinds without what only follows from others.

    A dtype follows from the default one; items of a container, from its length or keys; and a size that an older,
    static entry could not take is told by the shapes that the newest, dynamic one could not.
    """
    if explaining := explaining_kinds([each for found in kinds.values() for each in found]):
        return {kind: kinds[kind] for kind in explaining}
    kept = dict(sorted(kinds.items(), key=lambda each: each[0] == "first_call"))  # here it explains nothing else
    if any(item.index == "default_dtype" or item.subject == "default_dtype" for item in kept.get("global_state", [])):
        kept["dtype"] = []
    if kept.get("shape"):
        special = [item for item in kept.get("size", []) if advice_tensors.is_special(item)]
        kept["size"] = special or [item for item in kept.get("size", []) if not _is_told(item, kept["shape"])]
        if special:
            kept["shape"] = [item for item in kept["shape"] if not _LOWER_BOUND.match(item.index or "")]
    for container in (*filter(_holds_values, kept.get("length", [])), *kept.get("keys", [])):
        for kind in ("value", "presence", "type", "size"):
            items = kept.get(kind, [])
            kept[kind] = [item for item in items if not (item.subject or "").startswith(f"{container.subject}[")]
    return {kind: found for kind, found in kept.items() if found}


def _holds_values(container: ParsedGuard) -> bool:
    """Whether a container is a value of the program's, and not the arguments of a call."""
    return container.subject not in ARGUMENTS


def _is_told(size: ParsedGuard, shapes: Sequence[ParsedGuard]) -> bool:
    return any(f"{size.subject}.size()[{size.index}]" in (shape.index or "") for shape in shapes)


def _other(found: Sequence[ParsedGuard]) -> list[Advice]:
    if not any(item.subject for item in found):
        return [advice("recompile.unknown")]
    return [advice("recompile.other", names=joined_sources(found))]


_ADVICE: dict[str, Callable[[Sequence[ParsedGuard]], list[Advice]]] = {
    "size": advice_tensors.size,
    "computed_size": advice_tensors.computed_size,
    "shape": advice_tensors.shape,
    "rank": advice_tensors.rank,
    "dtype": advice_tensors.dtype,
    "stride": advice_tensors.stride,
    "device": advice_tensors.device,
    "requires_grad": advice_tensors.requires_grad,
    "dispatch_keys": advice_tensors.dispatch_keys,
    "global_state": process_state.global_state,
    "backend": process_state.backend,
    "length": advice_values.length,
    "keys": advice_values.keys,
    "membership": advice_values.membership,
    "identity": advice_values.identity,
    "first_call": advice_values.first_call,
    "race": process_state.thread_race,
    "freed": advice_values.freed,
    "type": advice_values.type_,
    "alias": advice_tensors.alias,
    "presence": advice_values.presence,
    "value": advice_values.value,
    "left_over": advice_values.left_over,
    "none": advice_values.none,
}
