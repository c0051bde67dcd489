"""Two recordings, kernel by kernel: which are the same, changed, split, merged, appeared or went.

Kernels are first matched by their source with the name left out. Of the rest, two of the same compile belong together
where they share half of the smaller one's nodes, or compute the same lines; two of different compiles (ids shift when a
program compiles one thing more) where they also share what Dynamo called the nodes.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dynadiag.kernels.unit import KernelCall

__all__ = ["Change", "compare_kernels", "source_diff"]

_SHARED = 0.5  # of the smaller kernel's nodes


@dataclass(frozen=True, slots=True)
class Change:
    """What became of some kernels. ``kind``: "same", "changed", "split", "merged", "appeared" or "went"."""

    kind: str
    before: tuple[KernelCall, ...]
    after: tuple[KernelCall, ...]


def compare_kernels(before: Sequence[KernelCall], after: Sequence[KernelCall]) -> tuple[Change, ...]:
    """The changes from one recording's kernels to another's, those that are the same last."""
    same, left, right = _same(before, after)
    near = _groups(left, right, _belongs)
    gone = [call for olds, news in near if not news for call in olds]
    new = [call for olds, news in near if not olds for call in news]
    groups = [group for group in near if all(group)] + _groups(gone, new, _resembles)
    return (*[_change(olds, news) for olds, news in groups], *same)


def source_diff(change: Change) -> str:
    """A unified diff of the sources of a change, the kernels' own names left out."""
    old, new = _whole(change.before), _whole(change.after)
    names = [", ".join(call.name for call in calls) or "nothing" for calls in (change.before, change.after)]
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), names[0], names[1], lineterm="")
    return "".join(line + "\n" for line in lines)


def _same(
    before: Sequence[KernelCall], after: Sequence[KernelCall]
) -> tuple[list[Change], list[KernelCall], list[KernelCall]]:
    """Pairs of the same source and stage, in order, and what is left on each side."""
    waiting: dict[tuple[str | None, str], list[KernelCall]] = {}
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


def _identity(call: KernelCall) -> tuple[str | None, str]:
    return call.stage, _nameless(call) if call.definition else f"{call.name} {call.text.partition('(')[2]}"


def _nameless(call: KernelCall) -> str:
    source = call.definition.source if call.definition else call.text + "\n"
    return source.replace(call.name, "KERNEL") if call.definition else source


def _whole(calls: Sequence[KernelCall]) -> str:
    return "\n".join(_nameless(call) for call in calls)


def _groups(
    before: Sequence[KernelCall], after: Sequence[KernelCall], related: Callable[[KernelCall, KernelCall], bool]
) -> list[tuple[list[KernelCall], list[KernelCall]]]:
    """Which old and new kernels belong together: the connected parts of `related`."""
    groups: list[tuple[list[KernelCall], list[KernelCall]]] = [([call], []) for call in before]
    for new in after:
        mine = [group for group in groups if any(related(old, new) for old in group[0])]
        rest = [group for group in groups if not any(group is one for one in mine)]
        olds = [old for group in mine for old in group[0]]
        news = [one for group in mine for one in group[1]]
        groups = [*rest, (olds, [*news, new])]
    return groups


def _belongs(old: KernelCall, new: KernelCall) -> bool:
    """Of two of one compile."""
    if old.compile_id != new.compile_id or not _alike(old, new):
        return False
    return _shares(old.nodes, new.nodes) or (bool(old.places) and set(old.places) == set(new.places))


def _resembles(old: KernelCall, new: KernelCall) -> bool:
    """Of any two."""
    return _alike(old, new) and _shares(old.nodes, new.nodes) and _shares(old.dynamo, new.dynamo)


def _alike(old: KernelCall, new: KernelCall) -> bool:
    return old.stage == new.stage and (old.language == "extern") == (new.language == "extern")


def _shares(old: Sequence[str], new: Sequence[str]) -> bool:
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
