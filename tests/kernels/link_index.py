"""Follows the rows of the link table in both directions, as a reader of a recording does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from dynadiag.kernels import SourceLine
from dynadiag.recording.records import Link


class LinkIndex:
    """The links of one generated module, read from the recording's link table. They can be followed in both directions.

    All lines are 1-based. A line without a mapping gives an empty answer.
    """

    def __init__(self, links: Iterable[Link]) -> None:
        self._names: defaultdict[tuple[str, int], set[str]] = defaultdict(set)  # (document, line) -> nodes
        self._module_lines: defaultdict[str, set[int]] = defaultdict(set)  # by lowered node
        self._made_from: defaultdict[str, set[str]] = defaultdict(set)  # Dynamo's node -> lowered, as torch reported
        self._reported: set[str] = set()  # lowered nodes with such a Dynamo node
        self._line_of: dict[tuple[str, str], SourceLine] = {}  # (document, node) -> the user's line
        self._nodes_of: defaultdict[SourceLine, set[tuple[str, str]]] = defaultdict(set)
        for link in links:
            self._add(link)

    def _add(self, link: Link) -> None:
        if link.document != "module":
            self._names[link.document, link.line].add(link.name)
        if link.to_line is None or link.to_name is None:
            return
        if link.document == "module":
            self._names["module", link.line].add(link.to_name)
            self._module_lines[link.to_name].add(link.line)
        elif link.to_document == "dynamo":
            self._made_from[link.to_name].add(link.name)
            self._reported.add(link.name)
        elif link.to_document == "source":
            self._line_of[link.document, link.name] = line = SourceLine(link.to_name, link.to_line)
            self._nodes_of[line].add((link.document, link.name))

    def source_lines(self, document: str, line: int) -> frozenset[SourceLine]:
        """Return the user's lines that a line of a document came from."""
        names = self._names.get((document, line), set())
        lowered = {("dynamo" if document == "dynamo" else "graph", name) for name in names}
        return frozenset(self._line_of[owner] for owner in lowered if owner in self._line_of)

    def nodes(self, document: str, line: int, file: str = "") -> frozenset[str]:
        """Return the lowered nodes of a line of a document; `file` names the user's file for "source"."""
        if document != "source":
            names = self._names.get((document, line), set())
            return frozenset(self._lowered_from(names) if document == "dynamo" else names)
        found = self._nodes_of.get(SourceLine(file, line), set())
        lowered = {name for owner, name in found if owner == "graph"}
        return frozenset(lowered | self._lowered_from({name for owner, name in found if owner == "dynamo"}))

    def module_lines(self, document: str, line: int, file: str = "") -> frozenset[int]:
        """Return the lines of the module, of kernels and calls, that a line of a document became."""
        return frozenset(one for name in self.nodes(document, line, file) for one in self._module_lines.get(name, ()))

    def _lowered_from(self, dynamo: set[str]) -> set[str]:
        """The lowered nodes made from Dynamo's. If torch reported none, those of the same source line."""
        lines = {self._line_of[owner] for name in dynamo if (owner := ("dynamo", name)) in self._line_of}
        same_line = {name for line in lines for owner, name in self._nodes_of[line] if owner == "graph"}
        return {made for name in dynamo for made in self._made_from.get(name, ())} | (same_line - self._reported)
