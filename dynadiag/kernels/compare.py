"""Two recordings, kernel by kernel: which are the same, changed, split, merged, appeared or went.

Kernels are first matched by their source with the name left out, then by the nodes that they compute: two that share
half of the smaller one's nodes belong together.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from dynadiag.kernels.survey import KernelCall

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
    changes = [_change(olds, news) for olds, news in _groups(left, right)]
    return (*changes, *same)


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
    before: Sequence[KernelCall], after: Sequence[KernelCall]
) -> list[tuple[list[KernelCall], list[KernelCall]]]:
    """Which old and new kernels belong together: the connected parts of "shares nodes with"."""
    groups: list[tuple[list[KernelCall], list[KernelCall]]] = [([call], []) for call in before]
    for new in after:
        mine = [group for group in groups if any(_share(old, new) for old in group[0])]
        rest = [group for group in groups if not any(group is one for one in mine)]
        olds = [old for group in mine for old in group[0]]
        news = [one for group in mine for one in group[1]]
        groups = [*rest, (olds, [*news, new])]
    return groups


def _share(old: KernelCall, new: KernelCall) -> bool:
    if old.stage != new.stage or (old.language == "extern") != (new.language == "extern"):
        return False
    mine, theirs = set(old.nodes), set(new.nodes)
    smaller = min(len(mine), len(theirs))
    return smaller > 0 and len(mine & theirs) >= _SHARED * smaller


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
