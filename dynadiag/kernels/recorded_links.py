"""The links between source lines and the graphs of one recorded compile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from dynadiag.kernels.document_links import CompileLinker, DocumentLinks
from dynadiag.kernels.generated_module import GeneratedModule, dynamo_nodes_of
from dynadiag.kernels.graph_parser import SourceLine
from dynadiag.kernels.node_origins import NodeOrigin
from dynadiag.recording.code_origin import is_user_file
from dynadiag.recording.records import Frame, Graph, Node

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

    def __init__(
        self,
        texts: CompileTexts,
        graphs: Sequence[Graph],
        *,
        from_cache: bool,
        origins: Mapping[int, Mapping[str, NodeOrigin]] | None = None,
        callers: Sequence[Frame] = (),
        modules: Sequence[GeneratedModule] = (),
    ) -> None:
        """``from_cache``: graphs from the FX graph cache bear the lines of the program that filled it.

        ``origins`` has those of the nodes of each of Dynamo's graphs, by its index, and ``callers`` the frames that led
        to the compiled function: without them only the innermost line of a node is linked. ``modules`` know which of
        Dynamo's nodes a node was made of.
        """
        self._texts, self._linker = texts, CompileLinker()
        self._origins, self._modules = origins or {}, modules
        self._sources: dict[int, Mapping[str, Sequence[str]]] = {}  # by the event of the module
        self._callers = [SourceLine(one.file, one.line) for one in callers if one.line and is_user_file(one.file)]
        self._dynamo = next((graph for graph in graphs if graph.stage == "dynamo"), None) if from_cache else None
        self._forward = next((graph for graph in graphs if graph.stage == "forward"), None)

    def graph(self, graph: Graph, text: str) -> DocumentLinks:
        """Link a graph of the compile, whose text is that of its payload."""
        if graph.stage == "dynamo":
            lines, origins = self._node_lines(graph.index), self._origins.get(graph.index)
            return self._linker.dynamo_graph(text, lines, origins, self._callers)
        if self._dynamo is None:
            return self._linker.later_graph(text, self.sources(graph))
        forward = self._texts.payload(self._forward.event) if self._forward is not None else None
        return self._linker.cached_graph(graph.stage, text, self._texts.payload(self._dynamo.event), forward)

    def sources(self, graph: Graph) -> Mapping[str, Sequence[str]]:
        """Return Dynamo's nodes of each node, as they are known for the code that was made of the graph.

        Until the passes after AOTAutograd a node keeps its name, so they hold for the graph that was split, too.
        """
        made = next((one for one in self._modules if one.graph_event == graph.event), None)
        made = made or next((one for one in self._modules if one.parsed.stage == graph.stage), None)
        if made is None:
            return {}
        if made.event not in self._sources:
            nodes = made.graph.nodes.values()
            self._sources[made.event] = {node.name: names for node in nodes if (names := dynamo_nodes_of(made, node))}
        return self._sources[made.event]

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
