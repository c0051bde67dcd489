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

from dynadiag.kernels import source_diff
from dynadiag.kernels.generated_module import KernelCall

__all__ = ["KernelChange", "change_diff", "compare_kernels"]

_MIN_SHARED = 0.5  # of the smaller kernel's parts or nodes
_BUFFER_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?![\w.(]| ?=)")  # a buffer, by the name it has in one module


@dataclass(frozen=True, slots=True)
class KernelChange:
    """How some kernels changed. `kind`: "same", "changed", "split", "merged", "appeared" or "went"."""

    kind: str
    before: tuple[KernelCall, ...]
    after: tuple[KernelCall, ...]


def compare_kernels(before: Sequence[KernelCall], after: Sequence[KernelCall]) -> tuple[KernelChange, ...]:
    """Return the changes from the kernels of one recording to another's, unchanged kernels last."""
    same, left, right = _match_identical(before, after)
    near = _group_related(left, right, _shares_parts)
    gone = [call for olds, news in near if not news for call in olds]
    new = [call for olds, news in near if not olds for call in news]
    groups = [group for group in near if all(group)] + _group_related(gone, new, _shares_nodes_or_lines)
    return (*[_classify(olds, news) for olds, news in groups], *same)


def change_diff(change: KernelChange) -> str:
    """Return a unified diff of the sources of a change, without the kernels' own names."""
    names = [", ".join(call.name for call in calls) or "nothing" for calls in (change.before, change.after)]
    return source_diff.diff_sources(_joined_sources(change.before), _joined_sources(change.after), (names[0], names[1]))


def _match_identical(
    before: Sequence[KernelCall], after: Sequence[KernelCall]
) -> tuple[list[KernelChange], list[KernelCall], list[KernelCall]]:
    """Pair kernels of the same source and stage, in order. Also returns what is left on each side."""
    waiting: dict[tuple[object, ...], list[KernelCall]] = {}
    for call in after:
        waiting.setdefault(_identity(call), []).append(call)
    pairs, left = [], []
    for call in before:
        found = waiting.get(_identity(call))
        if found:
            pairs.append(KernelChange("same", (call,), (found.pop(0),)))
        else:
            left.append(call)
    rest = {id(call) for calls in waiting.values() for call in calls}
    return pairs, left, [call for call in after if id(call) in rest]


def _identity(call: KernelCall) -> tuple[object, ...]:
    if call.definition is not None:
        return call.stage, _source_without_name(call)
    return call.stage, call.name, _BUFFER_NAME.sub("", call.text.partition("(")[2]), call.cost


def _source_without_name(call: KernelCall) -> str:
    source = call.definition.source if call.definition else call.text + "\n"
    return source.replace(call.name, "KERNEL") if call.definition else source


def _joined_sources(calls: Sequence[KernelCall]) -> str:
    return "\n".join(_source_without_name(call) for call in calls)


def _group_related(
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
    return _is_same_kind(old, new) and _overlaps(old.operator_lines, new.operator_lines)


def _shares_nodes_or_lines(old: KernelCall, new: KernelCall) -> bool:
    if old.compile_id != new.compile_id or not _is_same_kind(old, new):
        return False
    return _overlaps(old.nodes, new.nodes) or (
        bool(old.source_lines) and set(old.source_lines) == set(new.source_lines)
    )


def _is_same_kind(old: KernelCall, new: KernelCall) -> bool:
    return old.stage == new.stage and (old.language == "extern") == (new.language == "extern")


def _overlaps(old: Sequence[object], new: Sequence[object]) -> bool:
    smaller = min(len(set(old)), len(set(new)))
    return smaller > 0 and len(set(old) & set(new)) >= _MIN_SHARED * smaller


def _classify(olds: list[KernelCall], news: list[KernelCall]) -> KernelChange:
    kind = "changed"
    if not news:
        kind = "went"
    elif not olds:
        kind = "appeared"
    elif len(olds) == 1 and len(news) > 1:
        kind = "split"
    elif len(news) == 1 and len(olds) > 1:
        kind = "merged"
    return KernelChange(kind, tuple(olds), tuple(news))
