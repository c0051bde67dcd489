"""The links between the lines of documents, as panes use them: lines with a common key are linked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dynadiag.kernels.document_links import DocumentLinks

__all__ = ["LineKey", "LineLinks", "invert_links", "pane_links", "source_links"]

LineKey = tuple[str, int]  # a source line: file, line. A line of a kernel: the key of its module's document, line
# A comment, a blank line, the head of a function or kernel, an argument, another name for a value compute nothing.
_IDLE = re.compile(
    r"\s*(?:#|//|$|def |\w+ = async_compile\.|[A-Za-z_]\w*: \"[^\"]*\",?$"
    r"|[A-Za-z_]\w*(?:: ?\"[^\"\n]*\")? = [\w.]+(?:;.*)?$)"
)


@dataclass(frozen=True, slots=True)
class LineLinks:
    """The keys of each line of a document (from 0), and the lines of each key."""

    keys: Mapping[int, frozenset[LineKey]] = field(default_factory=dict)
    lines: Mapping[LineKey, tuple[int, ...]] = field(default_factory=dict)
    inferred: frozenset[int] = frozenset()  # lines whose link is inferred, and not stated by torch
    context: frozenset[int] = frozenset()  # lines of a kernel around its linked statements
    defined: Mapping[str, int] = field(default_factory=dict)  # the line of each node of a graph

    def keys_of(self, line: int) -> frozenset[LineKey]:
        """Return the keys of a line; none if the line has no mapping."""
        return self.keys.get(line, frozenset())

    def lines_of(self, keys: Iterable[LineKey]) -> tuple[int, ...]:
        """Return the lines that have any of these keys, sorted. Context is left out where there is anything else."""
        found = {line for key in keys for line in self.lines.get(key, ())}
        return tuple(sorted(found - self.context or found))

    def first_operator(self, keys: Iterable[LineKey], texts: Sequence[str]) -> int | None:
        """Return the first line with any of these keys that computes something. If none does, return the first line."""
        found = self.lines_of(keys)
        return next((line for line in found if not _IDLE.match(texts[line])), found[0] if found else None)


def invert_links(
    keys: Mapping[int, frozenset[LineKey]],
    inferred: frozenset[int] = frozenset(),
    defined: Mapping[str, int] | None = None,
    context: frozenset[int] = frozenset(),
) -> LineLinks:
    """Return the links of a document whose lines have these keys."""
    lines: dict[LineKey, list[int]] = {}
    for number, found in keys.items():
        for key in found:
            lines.setdefault(key, []).append(number)
    return LineLinks(keys, {key: tuple(numbers) for key, numbers in lines.items()}, inferred, context, defined or {})


def pane_links(links: DocumentLinks) -> LineLinks:
    """Return the links of a graph or a generated module, with lines counted from 0."""
    sets = {found: frozenset((one.file, one.line) for one in found) for found in set(links.lines.values())}
    keys = {line - 1: sets[found] for line, found in links.lines.items()}
    nodes = {name: line - 1 for name, line in links.nodes.items()}
    inferred, context = (frozenset(line - 1 for line in lines) for lines in (links.inferred, links.context))
    return invert_links(keys, inferred, nodes, context)


def source_links(file: str, count: int, linked: Iterable[LineKey]) -> LineLinks:
    """Return the links of a source file of `count` lines: each line in `linked` has itself as key."""
    return invert_links(
        {line - 1: frozenset({(file, line)}) for name, line in linked if name == file and 1 <= line <= count}
    )
