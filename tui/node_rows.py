"""Which lines of the panes belong to the same nodes: of Dynamo's graph, of the graph that was lowered, and of its code.

A line of source that every layer of a model runs has the nodes of all layers. Inductor reports the nodes of each call,
and torch those of Dynamo's that a node was made of: so a line of a graph, or of code, leads to those of its own layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from dynadiag.kernels.generated_module import GeneratedModule, KernelCall
from tui.line_links import LineLinks

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
        """The lowered nodes of a line: those of its node, of its statement, or of its call."""
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
        """The lowered nodes of each of Dynamo's."""
        found: dict[str, list[str]] = {}
        for name, sources in self._sources.items():
            for source in sources:
                found.setdefault(source, []).append(name)
        return found

    @cached_property
    def _code(self) -> Mapping[str, set[int]]:
        """The lines of the code that compute each lowered node."""
        found: dict[str, set[int]] = {}
        for call in self._module.calls:
            for names, line in ((call.nodes, call.line), *((one.nodes, one.line) for one in call.statements)):
                for name in names:
                    found.setdefault(name, set()).add(line - 1)
        return found
