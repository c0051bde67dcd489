"""The boxes of a drawn graph. The nodes of one module, or of one source line, can be folded into one box.

A region is a run of nodes, in the order of the graph, of the same module or source line. So the folded graph has no
cycle, whichever regions are open. Inputs that only one region reads, such as the weights of a module, are part of it
while it is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from dynadiag.grouping import grouped
from dynadiag.kernels.graph_parser import PrintedGraph, PrintedNode, SourceLine
from dynadiag.recording.torch_text.sources import attribute_name
from dynadiag.render.clean import clean_line
from dynadiag.render.readable_graph import shape_text
from dynadiag.render.wrap import truncate_end, truncate_middle

_MAX_TITLE = 34  # columns of a box
_RETURNED = "returned"


@dataclass(frozen=True, slots=True)
class GraphBox:
    """A box. ``nodes`` are the names of the nodes in it, ``line`` is where the printed graph has the first (from 1)."""

    key: str
    kind: str  # "input" | "operator" | "region"
    title: str
    detail: str  # type and shape, or what a region has
    nodes: tuple[str, ...]
    line: int
    sources: frozenset[SourceLine]


@dataclass(frozen=True, slots=True)
class FoldedGraph:
    """The boxes by key, in topological order, and the edges between them."""

    boxes: Mapping[str, GraphBox]
    edges: tuple[tuple[str, str], ...]

    def neighbours(self, key: str, max_boxes: int) -> FoldedGraph:
        """A box and the boxes around it, near ones first: its neighbours, then theirs, while `max_boxes` allows all."""
        near = grouped(pair for edge in self.edges for pair in (edge, edge[::-1]))
        kept = {key: None}
        frontier = dict.fromkeys(near.get(key, [])[: max_boxes - 1])
        while frontier and len(kept) + len(frontier) <= max_boxes:
            kept |= frontier
            frontier = {one: None for inner in frontier for one in near.get(inner, ()) if one not in kept}
        return self.only(kept)

    def only(self, keys: Collection[str]) -> FoldedGraph:
        boxes = {key: box for key, box in self.boxes.items() if key in keys}
        return FoldedGraph(boxes, tuple(edge for edge in self.edges if edge[0] in boxes and edge[1] in boxes))


@dataclass(frozen=True)
class _Region:
    """Nodes that one box can stand for, and the regions among them."""

    key: str
    title: str
    items: tuple[_Region | PrintedNode, ...]

    @cached_property
    def nodes(self) -> tuple[PrintedNode, ...]:
        found = (item.nodes if isinstance(item, _Region) else (item,) for item in self.items)
        return tuple(node for part in found for node in part)


class DrawableGraph:
    """A printed graph, with its regions."""

    def __init__(
        self,
        graph: PrintedGraph,
        modules: Mapping[str, Sequence[str]] | None = None,
        values: Mapping[str, str] | None = None,
    ) -> None:
        """``modules`` has the modules that each node is in, the outermost first, and ``values`` a text of the value of
        each, where they were recorded.
        """
        self._modules, self._values = modules or {}, values or {}
        self._nodes = {node.name: node for node in graph.nodes.values()}
        self._aliases = {name: node.name for name, node in graph.nodes.items()}
        self._inputs = [node for node in self._nodes.values() if not node.target]
        self._returned = {self._aliases[name] for name in graph.returns.get("", ()) if name}
        items = _regions([node for node in self._nodes.values() if node.target], self._chain, 0)
        while len(items) == 1 and isinstance(items[0], _Region):  # one box would show nothing
            items = items[0].items
        self._items = items

    def region_keys_of(self, name: str) -> tuple[str, ...]:
        """The regions around a node, the outermost first."""
        return next(_regions_around(self._items, self._aliases.get(name, name)), ())

    @property
    def operators(self) -> Sequence[str]:
        """The names of the nodes that compute something, in the order of execution."""
        return [name for name, node in self._nodes.items() if node.target]

    def box_of(self, folded: FoldedGraph, name: str) -> str | None:
        """The box that a node is in; ``None`` for a name that the graph does not have."""
        name = self._aliases.get(name, name)
        return next((key for key, box in folded.boxes.items() if name in box.nodes), None)

    def fold(self, opened: Collection[str] = (), *, everything: bool = False) -> FoldedGraph:
        """The graph with these regions open (`everything`: all)."""
        shown = list(_shown(self._items, opened, everything=everything))
        box_of_node = {node.name: item_key for item_key, item in shown for node in _nodes_of(item)}
        own = self._inputs_of_regions(dict(shown), box_of_node)
        box_of_node |= {name: key for key, names in own.items() for name in names}
        boxes = {node.name: self._input(node) for node in self._inputs if node.name not in box_of_node}
        box_of_node |= {name: name for name in boxes}
        boxes |= {key: self._box(key, item, own.get(key, ())) for key, item in shown}
        return FoldedGraph(boxes, tuple(dict.fromkeys(self._edges(box_of_node))))

    def _chain(self, node: PrintedNode) -> tuple[tuple[str, str], ...]:
        """The keys and titles of the regions that a node belongs to, the outermost first."""
        modules = [(f"module {name}", name) for name in self._modules.get(node.name, ())]
        place = node.source_line
        line = [(f"line {place.file}:{place.line}", f"line {place.line}: {node.source_text}")] if place else []
        subgraph = [(f"subgraph {node.subgraph}", node.subgraph)] if node.subgraph else []
        return (*subgraph, *modules, *line)

    def _inputs_of_regions(
        self, shown: Mapping[str, _Region | PrintedNode], box_of_node: Mapping[str, str]
    ) -> dict[str, list[str]]:
        """The inputs that only one closed region reads."""
        readers = grouped(
            (self._aliases[name], box_of_node.get(node.name, ""))
            for node in self._nodes.values()
            for name in node.inputs
        )
        found: dict[str, list[str]] = {}
        for node in self._inputs:
            keys = {*readers.get(node.name, ())}
            if len(keys) == 1 and isinstance(shown.get(key := next(iter(keys))), _Region):
                found.setdefault(key, []).append(node.name)
        return found

    def _edges(self, box_of_node: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        for node in self._nodes.values():
            for name in node.inputs:
                if (source := box_of_node[self._aliases[name]]) != box_of_node[node.name]:
                    yield source, box_of_node[node.name]

    def _input(self, node: PrintedNode) -> GraphBox:
        title = truncate_middle(clean_line(attribute_name(node.printed_name)), _MAX_TITLE)
        return GraphBox(
            node.name, "input", title, self._detail(self._shape(node), [node]), (node.name,), node.line, frozenset()
        )

    def _box(self, key: str, item: _Region | PrintedNode, inputs: Sequence[str]) -> GraphBox:
        nodes = _nodes_of(item)
        names = (*inputs, *(node.name for node in nodes))
        sources = frozenset(node.source_line for node in nodes if node.source_line is not None)
        if isinstance(item, _Region):
            title = truncate_end(clean_line(item.title), _MAX_TITLE)
            return GraphBox(
                key, "region", title, self._detail(f"{len(nodes)} nodes", nodes), names, nodes[0].line, sources
            )
        return GraphBox(
            key, "operator", _title(item), self._detail(self._shape(item), nodes), names, item.line, sources
        )

    def _shape(self, node: PrintedNode) -> str:
        """The type and shape of a node, and its value."""
        value = self._values.get(node.name, "")
        return truncate_end(clean_line(f"{shape_text(node.annotation)} {value}".strip()), _MAX_TITLE)

    def _detail(self, text: str, nodes: Sequence[PrintedNode]) -> str:
        """The second line of a box, which also says if the graph returns one of its nodes."""
        returned = _RETURNED if any(node.name in self._returned for node in nodes) else ""
        return ", ".join(part for part in (text, returned) if part)


def _regions(
    nodes: Sequence[PrintedNode], chain_of: Callable[[PrintedNode], Sequence[tuple[str, str]]], depth: int
) -> tuple[_Region | PrintedNode, ...]:
    """The regions at a depth, each with those in it. One node is no region, nor are nodes that fill another region."""

    def region_of(node: PrintedNode) -> tuple[str, str] | None:
        chain = chain_of(node)
        return chain[depth] if depth < len(chain) else None

    found: list[_Region | PrintedNode] = []
    for name, group in groupby(nodes, region_of):
        run = list(group)
        if name is None or len(run) == 1:
            found += run
            continue
        items = _regions(run, chain_of, depth + 1)
        if len(items) == 1 and isinstance(items[0], _Region):
            items = items[0].items
        found.append(_Region(f"{name[0]} @{run[0].name}", name[1], items))
    return tuple(found)


def _nodes_of(item: _Region | PrintedNode) -> tuple[PrintedNode, ...]:
    return item.nodes if isinstance(item, _Region) else (item,)


def _shown(
    items: Iterable[_Region | PrintedNode], opened: Collection[str], *, everything: bool
) -> Iterator[tuple[str, _Region | PrintedNode]]:
    """The items that have a box: closed regions, and the nodes that are in none."""
    for item in items:
        if not isinstance(item, _Region):
            yield item.name, item
        elif everything or item.key in opened:
            yield from _shown(item.items, opened, everything=everything)
        else:
            yield item.key, item


def _regions_around(items: Iterable[_Region | PrintedNode], name: str) -> Iterator[tuple[str, ...]]:
    for item in items:
        if isinstance(item, _Region):
            yield from ((item.key, *rest) for rest in _regions_around(item.items, name))
        elif item.name == name:
            yield ()


def _title(node: PrintedNode) -> str:
    """The name of a node and its operator; the name alone if it contains the operator (``relu_1``)."""
    name, operator = clean_line(node.printed_name), clean_line(node.operator)
    return truncate_end(name if name.startswith(operator) else f"{name} = {operator}", _MAX_TITLE)
