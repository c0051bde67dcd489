"""Compare the kernels of two recordings: same, changed, split, merged, appeared or went.

Kernels are matched first by their source without the name, library calls by their arguments. Remaining kernels belong
together when they share half of the smaller one's operators, each taken with the text of its source line. That holds
even when nodes, compiles and lines have other numbers. Kernels that share none, because their own line changed, belong
together when they share half of their nodes, or all lines, in the same compile.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dynadiag.kernels import sourcediff
from dynadiag.kernels.unit import KernelCall

__all__ = ["Change", "compare_kernels", "source_diff"]

_SHARED = 0.5  # of the smaller kernel's parts or nodes
_GIVEN = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?![\w.(]| ?=)")  # a buffer, by the name it has in one module


@dataclass(frozen=True, slots=True)
class Change:
    """How some kernels changed. `kind`: "same", "changed", "split", "merged", "appeared" or "went"."""

    kind: str
    before: tuple[KernelCall, ...]
    after: tuple[KernelCall, ...]


def compare_kernels(before: Sequence[KernelCall], after: Sequence[KernelCall]) -> tuple[Change, ...]:
    """Return the changes from the kernels of one recording to another's, unchanged kernels last."""
    same, left, right = _same(before, after)
    near = _groups(left, right, _shares_parts)
    gone = [call for olds, news in near if not news for call in olds]
    new = [call for olds, news in near if not olds for call in news]
    groups = [group for group in near if all(group)] + _groups(gone, new, _belongs)
    return (*[_change(olds, news) for olds, news in groups], *same)


def source_diff(change: Change) -> str:
    """Return a unified diff of the sources of a change, without the kernels' own names."""
    names = [", ".join(call.name for call in calls) or "nothing" for calls in (change.before, change.after)]
    return sourcediff.source_diff(_whole(change.before), _whole(change.after), (names[0], names[1]))


def _same(
    before: Sequence[KernelCall], after: Sequence[KernelCall]
) -> tuple[list[Change], list[KernelCall], list[KernelCall]]:
    """Pair kernels of the same source and stage, in order. Also returns what is left on each side."""
    waiting: dict[tuple[object, ...], list[KernelCall]] = {}
    for call in after:
        waiting.setdefault(_identity(call), []).append(call)
    pairs, left = [], []
    for call in before:
        found = waiting.get(_identity(call))
        if found:
            pairs.append(Change("same", (call,), (found.pop(0),)))
        else:
            left.append(call)
    rest = {id(call) for calls in waiting.values() for call in calls}
    return pairs, left, [call for call in after if id(call) in rest]


def _identity(call: KernelCall) -> tuple[object, ...]:
    if call.definition is not None:
        return call.stage, _nameless(call)
    return call.stage, call.name, _GIVEN.sub("", call.text.partition("(")[2]), call.cost


def _nameless(call: KernelCall) -> str:
    source = call.definition.source if call.definition else call.text + "\n"
    return source.replace(call.name, "KERNEL") if call.definition else source


def _whole(calls: Sequence[KernelCall]) -> str:
    return "\n".join(_nameless(call) for call in calls)


def _groups(
    before: Sequence[KernelCall], after: Sequence[KernelCall], related: Callable[[KernelCall, KernelCall], bool]
) -> list[tuple[list[KernelCall], list[KernelCall]]]:
    """Group old and new kernels: the connected components of `related`."""
    groups: list[tuple[list[KernelCall], list[KernelCall]]] = [([call], []) for call in before]
    for new in after:
        mine = [group for group in groups if any(related(old, new) for old in group[0])]
        rest = [group for group in groups if not any(group is one for one in mine)]
        olds = [old for group in mine for old in group[0]]
        news = [one for group in mine for one in group[1]]
        groups = [*rest, (olds, [*news, new])]
    return groups


def _shares_parts(old: KernelCall, new: KernelCall) -> bool:
    return _alike(old, new) and _shares(old.parts, new.parts)


def _belongs(old: KernelCall, new: KernelCall) -> bool:
    if old.compile_id != new.compile_id or not _alike(old, new):
        return False
    return _shares(old.nodes, new.nodes) or (bool(old.places) and set(old.places) == set(new.places))


def _alike(old: KernelCall, new: KernelCall) -> bool:
    return old.stage == new.stage and (old.language == "extern") == (new.language == "extern")


def _shares(old: Sequence[object], new: Sequence[object]) -> bool:
    smaller = min(len(set(old)), len(set(new)))
    return smaller > 0 and len(set(old) & set(new)) >= _SHARED * smaller


def _change(olds: list[KernelCall], news: list[KernelCall]) -> Change:
    kind = "changed"
    if not news:
        kind = "went"
    elif not olds:
        kind = "appeared"
    elif len(olds) == 1 and len(news) > 1:
        kind = "split"
    elif len(news) == 1 and len(olds) > 1:
        kind = "merged"
    return Change(kind, tuple(olds), tuple(news))
