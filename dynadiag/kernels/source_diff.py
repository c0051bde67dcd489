"""Diff two kernel sources and ignore names of temporaries.

Inductor numbers the values of a kernel in order (``tmp12``), so one more statement renumbers all that follow. Here two
values are the same when the statements that assign them align, whatever their names are. A Triton kernel has its
metadata on one line of a thousand characters: it is compared item by item.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from dynadiag.kernels.expressions import split_arguments

__all__ = ["diff_sources"]

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
