"""Compare the kernels of two recordings: same, changed, split, merged, new or gone.

Kernels are matched first by their source without the name, library calls by their arguments. Remaining kernels belong
together when they share half of the smaller one's operators, each taken with the text of its source line. That holds
even when nodes, compiles and lines have other numbers. Kernels that share none, because their own line changed, belong
together when they share half of their nodes, or the text of all their lines, in the same compile. Compiles are
compared one by one; what has no partner there may have moved to another compile.

Sources are diffed without names of temporaries. Inductor numbers the values of a kernel in order (``tmp12``), so one
more statement renumbers all that follow. Here two values are the same when the statements that assign them align,
whatever their names are. A Triton kernel has its metadata on one line of a thousand characters: it is compared item by
item.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from dynadiag.grouping import paired
from dynadiag.kernels.generated_module import KernelCall
from dynadiag.kernels.graph_parser import split_arguments

_MIN_SHARED = 0.5  # of the smaller kernel's parts or nodes
_BUFFER_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?![\w.(]| ?=)")  # a buffer, by the name it has in one module


@dataclass(frozen=True, slots=True)
class KernelChange:
    """How some kernels changed. `kind`: "same", "changed", "split", "merged", "appeared" or "went"."""

    kind: str
    before: tuple[KernelCall, ...]
    after: tuple[KernelCall, ...]


def changed_kernels(compiles: Iterable[tuple[Sequence[KernelCall], Sequence[KernelCall]]]) -> Iterator[KernelChange]:
    """Yield the changes from the kernels of compiles to those of their partners. A compile without one has none there.

    Each compile is read when its turn comes, and of its kernels only those that changed are kept.
    """
    rest = [_match_identical(olds, news)[1:] for olds, news in compiles]
    before, after = ([call for pair in rest for call in pair[side]] for side in (0, 1))
    _, *moved = _match_identical(before, after)
    kept = {id(call) for side in moved for call in side}
    gone: list[KernelCall] = []
    new: list[KernelCall] = []
    for pair in rest:
        for change in compare_kernels(*([call for call in side if id(call) in kept] for side in pair)):
            if change.before and change.after:
                yield change
            else:
                gone += change.before
                new += change.after
    yield from (_classify(*group) for group in _group_related(gone, new, _shares_parts))


def compare_kernels(before: Sequence[KernelCall], after: Sequence[KernelCall]) -> tuple[KernelChange, ...]:
    """Return the changes from the kernels of one compile to those of another, unchanged kernels last."""
    same, left, right = _match_identical(before, after)
    near = _group_related(left, right, _shares_parts)
    gone = [call for olds, news in near if not news for call in olds]
    new = [call for olds, news in near if not olds for call in news]
    groups = [group for group in near if all(group)] + _group_related(gone, new, _shares_nodes_or_lines)
    return (*[_classify(olds, news) for olds, news in groups], *same)


def change_diff(change: KernelChange) -> str:
    """Return a unified diff of the sources of a change, without the kernels' own names."""
    names = [", ".join(call.name for call in calls) or "nothing" for calls in (change.before, change.after)]
    return diff_sources(_joined_sources(change.before), _joined_sources(change.after), (names[0], names[1]))


def _match_identical(
    before: Sequence[KernelCall], after: Sequence[KernelCall]
) -> tuple[list[KernelChange], list[KernelCall], list[KernelCall]]:
    """Pair kernels of the same source and stage, in order. Also returns what is left on each side."""
    pairs = paired(*([(_identity(call), call) for call in side] for side in (after, before)))
    known = {id(call) for pair in pairs for call in pair}
    left, rest = ([call for call in side if id(call) not in known] for side in (before, after))
    return [KernelChange("same", (old,), (new,)) for new, old in pairs], left, rest


def _identity(call: KernelCall) -> tuple[object, ...]:
    if call.definition is not None:
        return call.stage, _source_without_name(call)
    return call.stage, call.name, _BUFFER_NAME.sub("", call.text.partition("(")[2]), call.cost


def _source_without_name(call: KernelCall) -> str:
    return call.definition.source.replace(call.name, "KERNEL") if call.definition else call.text + "\n"


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
    lines = [{line for _, line in call.operator_lines} for call in (old, new)]
    same_lines = bool(lines[0]) and lines[0] == lines[1]
    return _is_same_kind(old, new) and (_overlaps(old.nodes, new.nodes) or same_lines)


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


_VALUE = re.compile(r"(?<![\w.])_?(?:masked_)?tmp\w*")
_ASSIGNED = re.compile(r"^\s*(?:auto )?(_?(?:masked_)?tmp\w*)[^=]* = ")
_DICTIONARY = re.compile(r"^( *)([^{]*)\{(.+)\},?$")
_MAX_LINE = 120  # columns; a dictionary on a longer line is split into one item per line
_CONTEXT = 3  # lines around a difference, the default of unified diffs


def diff_sources(before: str, after: str, titles: tuple[str, str]) -> str:
    """Return a unified diff, empty when only names differ."""
    old, new = _split_lines(before), _split_lines(after)
    matcher = SequenceMatcher(None, old, _Renaming(old, new).renamed(), autojunk=False)
    hunks = [line for group in matcher.get_grouped_opcodes(_CONTEXT) for line in _hunk(group, old, new)]
    return "".join(f"{line}\n" for line in ([f"--- {titles[0]}", f"+++ {titles[1]}", *hunks] if hunks else []))


def _hunk(group: Sequence[tuple[str, int, int, int, int]], old: list[str], new: list[str]) -> Iterator[str]:
    (_, a, _, c, _), (_, _, b, _, d) = group[0], group[-1]
    yield f"@@ -{a + 1},{b - a} +{c + 1},{d - c} @@"
    for tag, a, b, c, d in group:
        if tag == "equal":
            yield from (f" {line}" for line in new[c:d])
        else:
            yield from (f"-{line}" for line in old[a:b])
            yield from (f"+{line}" for line in new[c:d])


def _split_lines(source: str) -> list[str]:
    return [part for line in source.splitlines() for part in _split_dictionary(line)]


def _split_dictionary(line: str) -> Iterator[str]:
    """Split a long line that is a dictionary into one item per line."""
    found = _DICTIONARY.match(line) if len(line) > _MAX_LINE else None
    if found is None:
        yield line
        return
    indent, name, inner = found.groups()
    yield f"{indent}{name}{{"
    for item in split_arguments(inner + "}"):
        yield from _split_dictionary(f"{indent}    {item},")
    yield f"{indent}}},"


class _Renaming:
    """Renames the values of a new source to their names in the old source."""

    def __init__(self, old: list[str], new: list[str]) -> None:
        self._old, self._new = old, new
        self._names: dict[str, str] = {}  # new name -> old name
        self._removed: set[str] = set()  # old values that no statement assigns any more

    def renamed(self) -> list[str]:
        """Return the new source's lines in the old names. A value that is new gets a name of its own."""
        lines: list[str] = []
        old, new = ([_VALUE.sub("tmp", line) for line in source] for source in (self._old, self._new))
        for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            if tag == "equal":
                lines += map(self._add_pair, self._old[a:b], self._new[c:d])
            else:
                self._removed.update(name for line in self._old[a:b] if (name := _assigned_value(line)))
                lines += map(self._add_new, self._new[c:d])
        return lines

    def _add_new(self, line: str) -> str:
        text = self._in_old_names(line)
        if (name := _assigned_value(line)) is not None:
            self._names[name] = f"{name}'"
        return text

    def _add_pair(self, old: str, new: str) -> str:
        """Rename a line that aligns with an old one. A new operand may replace a removed old one."""
        mine, theirs = _VALUE.findall(new), _VALUE.findall(old)
        made, had = _assigned_value(new), _assigned_value(old)
        for name, other in zip(mine, theirs, strict=True):
            if name != made and self._names.get(name, "").endswith("'") and other in self._removed:
                self._names[name] = other
        if made is not None and had is not None:
            self._removed.discard(had)
            text = self._in_old_names(new[new.index(made) + len(made) :])
            self._names[made] = had
            return new[: new.index(made)] + had + text
        return self._in_old_names(new)

    def _in_old_names(self, line: str) -> str:
        return _VALUE.sub(lambda found: self._names.get(found[0], found[0]), line)


def _assigned_value(line: str) -> str | None:
    """The value that a statement assigns."""
    found = _ASSIGNED.match(line)
    return found[1] if found else None
