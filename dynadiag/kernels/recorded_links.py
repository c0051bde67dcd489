"""The links between source lines and the graphs of one recorded compile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dynadiag.kernels.document_links import CompileLinker, DocumentLinks
from dynadiag.kernels.generated_module import GeneratedModule
from dynadiag.kernels.graph_parser import SourceLine
from dynadiag.recording.records import Graph, Node

__all__ = ["MAX_LINKED_NODES", "MAX_MODULE_NODES", "CompileTexts", "RecordedLinks"]

MAX_LINKED_NODES = 30_000  # nodes of the graphs of a compile that are linked before anybody looks at them
MAX_MODULE_NODES = 100_000  # with more nodes in its graphs, kernels are only linked by comments and names
_PAGE_ROWS = 5_000  # rows of nodes read at once
_MAX_SPANS = 200_000  # nodes whose source lines are kept


class CompileTexts(Protocol):
    """What is read of a recording."""

    def payload(self, event: int) -> str:
        """The payload of an event."""
        ...

    def nodes(self, graph: int, start: int = 0, limit: int | None = None) -> Sequence[Node]:
        """The nodes of a graph that were recorded as data."""
        ...


class RecordedLinks:
    """Links the documents of one compile. Dynamo's graphs must be linked first."""

    def __init__(self, texts: CompileTexts, graphs: Sequence[Graph], *, from_cache: bool) -> None:
        """``from_cache``: graphs from the FX graph cache bear the lines of the program that filled it."""
        self._texts, self._linker = texts, CompileLinker()
        self._dynamo = next((graph for graph in graphs if graph.stage == "dynamo"), None) if from_cache else None
        self._forward = next((graph for graph in graphs if graph.stage == "forward"), None)

    def graph(self, graph: Graph, text: str) -> DocumentLinks:
        """Link a graph of the compile, whose text is that of its payload."""
        if graph.stage == "dynamo":
            return self._linker.dynamo_graph(text, self._node_lines(graph.index))
        if self._dynamo is None:
            return self._linker.later_graph(text)
        forward = self._texts.payload(self._forward.event) if self._forward is not None else None
        return self._linker.cached_graph(graph.stage, text, self._texts.payload(self._dynamo.event), forward)

    def module(self, text: str, generated: GeneratedModule | None) -> DocumentLinks:
        """Link generated code."""
        return self._linker.module(text, generated)

    def _node_lines(self, graph: int) -> dict[str, SourceLine]:
        """The source line of each node that was recorded as data. Nodes are read in pages to save memory."""
        found: dict[str, SourceLine] = {}
        start = 0
        while len(found) < _MAX_SPANS:
            page = self._texts.nodes(graph, start, _PAGE_ROWS)
            for node in page:
                if node.span.file and node.span.line:
                    found[node.name] = SourceLine(node.span.file, node.span.line)
            if len(page) < _PAGE_ROWS:
                break
            start += _PAGE_ROWS
        return found
