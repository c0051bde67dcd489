"""The links between the lines of documents, as panes use them: by common keys, and by the nodes on them.

A line of source that every layer of a model runs has the nodes of all layers. Inductor reports the nodes of each call,
and torch those of Dynamo's that a node was made of: so a line of a graph, or of code, leads to those of its own layer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from dynadiag.grouping import grouped

if TYPE_CHECKING:
    from dynadiag.kernels.document_links import DocumentLinks
    from dynadiag.kernels.generated_module import GeneratedModule, KernelCall


LineKey = tuple[str, int]  # a source line: file, line. A line of a kernel: the key of its module's document, line
# A comment, a blank line, the head of a function or kernel, an argument, another name for a value compute nothing.
_IDLE = re.compile(
    r"\s*(?:#|//|$|def |\w+ = async_compile\.|[A-Za-z_]\w*: \"[^\"]*\",?$"
    r"|[A-Za-z_]\w*(?:: ?\"[^\"\n]*\")? = [\w.]+(?:;.*)?$)"
)


@dataclass(frozen=True)  # without slots, where the lines of each key could not be kept
class LineLinks:
    """The keys of each line of a document (from 0), and the lines of each key."""

    keys: Mapping[int, frozenset[LineKey]] = field(default_factory=dict)
    inferred: frozenset[int] = frozenset()  # lines whose link is inferred, and not stated by torch
    context: frozenset[int] = frozenset()  # lines of a kernel around its linked statements
    defined: Mapping[str, int] = field(default_factory=dict)  # the line of each node of a graph
    callers: Mapping[int, frozenset[LineKey]] = field(default_factory=dict)  # the lines of all frames that led to it

    @cached_property
    def lines(self) -> Mapping[LineKey, tuple[int, ...]]:
        found = grouped((key, number) for number, keys in self.keys.items() for key in keys)
        return {key: tuple(numbers) for key, numbers in found.items()}

    @cached_property
    def names(self) -> Mapping[int, str]:
        return {line: name for name, line in self.defined.items()}

    def keys_of(self, line: int) -> frozenset[LineKey]:
        """Return the keys of a line; none if the line has no mapping."""
        return self.keys.get(line, frozenset())

    def lines_of(self, keys: Iterable[LineKey]) -> tuple[int, ...]:
        """Return the lines that have any of these keys, sorted. Context is left out where there is anything else."""
        found = {line for key in keys for line in self.lines.get(key, ())}
        return tuple(sorted(found - self.context or found))

    def called_from(self, keys: Set[LineKey]) -> tuple[int, ...]:
        """Return the lines that one of these source lines led to, sorted: by a call of a function or of a module."""
        lines = tuple(line for line, frames in self.callers.items() if not keys.isdisjoint(frames)) if keys else ()
        return tuple(sorted(set(lines) - self.context or lines))

    def made_of(self, keys: Set[LineKey]) -> tuple[int, ...]:
        """Return the lines made of these source lines themselves; if there are none, those that they led to."""
        return self.lines_of(keys) or self.called_from(keys)

    def first_operator(self, keys: Set[LineKey], texts: Sequence[str]) -> int | None:
        """Return the first line made of these source lines that computes something, or else the first line."""
        found = self.made_of(keys)
        return next((line for line in found if not _IDLE.match(texts[line])), found[0] if found else None)


def pane_links(links: DocumentLinks) -> LineLinks:
    """Return the links of a graph or a generated module, with lines counted from 0."""
    every = {*links.lines.values(), *links.callers.values()}
    sets = {found: frozenset((one.file, one.line) for one in found) for found in every}
    callers = {line - 1: sets[found] for line, found in links.callers.items()}
    keys = {line - 1: sets[found] for line, found in links.lines.items()}
    nodes = {name: line - 1 for name, line in links.nodes.items()}
    inferred, context = (frozenset(line - 1 for line in lines) for lines in (links.inferred, links.context))
    return LineLinks(keys, inferred, context, nodes, callers)


def source_links(file: str, count: int, linked: Iterable[LineKey], calling: Iterable[LineKey] = ()) -> LineLinks:
    """Return the links of a source file of `count` lines: each line in `linked` or in `calling` has itself as key.

    Those that are only in `calling` led to nodes by what they call.
    """
    own, above = (
        {line - 1: frozenset({(file, line)}) for name, line in lines if name == file and 1 <= line <= count}
        for lines in (linked, calling)
    )
    return LineLinks({**above, **own}, callers={line: keys for line, keys in above.items() if line not in own})


CODE, DYNAMO, LOWERED = "code", "dynamo", "lowered"  # the stages of a document


class NodeRows:
    """The nodes on each line of a generated module and of its graphs, and the lines of each. All count from 0."""

    def __init__(self, module: GeneratedModule, sources: Mapping[str, Sequence[str]]) -> None:
        """`sources` are Dynamo's nodes of the nodes of the lowered graph."""
        self._module, self._sources = module, sources

    def call_on(self, row: int) -> KernelCall | None:
        """The call on a line of the code; on a line of a kernel its call, if there is only one."""
        own = [call for call in self._module.calls if call.line == row + 1 or call.is_defined_at(row + 1)]
        return own[0] if len(own) == 1 else None

    def names(self, stage: str, links: LineLinks, row: int) -> Sequence[str]:
        if stage != CODE:
            name = links.names.get(row, "")
            return self._made.get(name, ()) if stage == DYNAMO else (name,)
        if (call := self.call_on(row)) is None:
            return ()
        return [name for one in call.statements if one.line == row + 1 for name in one.nodes] or call.nodes

    def rows(self, stage: str, links: LineLinks, names: Iterable[str]) -> tuple[int, ...]:
        """The lines of lowered nodes: of what they were made of, of themselves, or of the calls and statements."""
        if stage == CODE:
            return tuple(sorted({row for name in names for row in self._code.get(name, ())}))
        shown = names if stage == LOWERED else [source for name in names for source in self._sources.get(name, ())]
        return tuple(sorted({links.defined[name] for name in shown if name in links.defined}))

    @cached_property
    def _made(self) -> Mapping[str, Sequence[str]]:
        return grouped((source, name) for name, sources in self._sources.items() for source in sources)

    @cached_property
    def _code(self) -> Mapping[str, Sequence[int]]:
        """The lines of the code that compute each lowered node."""
        parts = [(call.nodes, call.line) for call in self._module.calls]
        parts += ((one.nodes, one.line) for call in self._module.calls for one in call.statements)
        return grouped((name, line - 1) for names, line in parts for name in names)
