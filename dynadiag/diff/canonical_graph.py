"""The canonical form of a printed graph: what is computed, without names, addresses and line numbers.

Two graphs have the same canonical form if they have the same operators in the same order, with the same arguments,
types (dtype, sizes, strides, device) and users.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from dynadiag.kernels.graph_parser import PrintedNode, SourceLine, parse_graph
from dynadiag.recording.torch_text.comparable import without_addresses

_NODE = re.compile(r"(?<![\w.'\"])[A-Za-z_]\w*(?! = )")  # a plain name that is no keyword of a call
_SYMBOL = re.compile(r"(?<![\w.%])(?:s|u|zf|zuf)\d+(?![\w(])")  # a size symbol of torch
_NUMBERED_SYMBOL = re.compile(r"\$\d+")
_ATTRIBUTE = re.compile(r"\bself\.[\w.]+")  # a parameter, constant, submodule or subgraph: its name is arbitrary
# Triton kernels and their constant arguments are numbered in the order in which the process met them.
_SIDE_TABLE = re.compile(r"\b(kernel_idx|constant_args_idx) = \d+")
_INPUT, OUTPUT = "placeholder", "output"


@dataclass(frozen=True, slots=True)
class CanonicalNode:
    """A node whose inputs are positions in the graph.

    `call` is the operator with its arguments, inputs numbered in order: ``torch.ops.aten.add.Tensor(%0, %1)``. `type`
    is the printed type. In both, size symbols are numbered in the order of the graph. `name`, `text` and `source_line`
    are for the reader and not part of the identity.
    """

    target: str
    call: str
    type: str
    inputs: tuple[int, ...]
    name: str
    text: str
    source_line: SourceLine | None

    @property
    def label(self) -> tuple[str, str]:
        """What the node computes, without its inputs."""
        return self.call, self.type

    @property
    def computes(self) -> bool:
        """Whether it is an operator: no input, attribute or output."""
        return self.target not in (_INPUT, "get_attr", OUTPUT)


@dataclass(frozen=True)
class CanonicalGraph:
    """The nodes of a graph in order. The last is a node "output" for each graph and subgraph that returns."""

    nodes: tuple[CanonicalNode, ...]

    @cached_property
    def digest(self) -> str:
        """A hash that two graphs share exactly if their canonical forms are the same."""
        text = "\n".join(f"{node.call}|{node.type}|{node.inputs}" for node in self.nodes)
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()

    @cached_property
    def operators(self) -> tuple[str, ...]:
        """The operators that the graph computes with, in order."""
        return tuple(node.target for node in self.nodes if node.computes)


def canonical_graph(text: str) -> CanonicalGraph:
    """Return the canonical form of a graph that torch printed."""
    graph = parse_graph(text)
    order = list({id(node): node for node in graph.nodes.values()}.values())
    position = {id(node): index for index, node in enumerate(order)}
    index = {name: position[id(node)] for name, node in graph.nodes.items()}
    symbols = _Symbols()
    nodes = [_canonical_node(node, index, symbols) for node in order]
    outputs = (_output(names, index) for names in graph.returns.values() if names)
    return CanonicalGraph((*nodes, *outputs))


def with_inputs_in_order_of(other: CanonicalGraph, graph: CanonicalGraph) -> CanonicalGraph:
    """Return a graph with the inputs that another one has too, by their names, in that one's order.

    Dynamo orders the inputs by when the program reads them first, which says nothing of what is computed. And what is
    computed of two inputs differs if they are exchanged.
    """
    places = {node.name: place for place, node in enumerate(graph.nodes) if node.target == _INPUT}
    shared = [node.name for node in other.nodes if node.target == _INPUT and node.name in places]
    order = list(range(len(graph.nodes)))
    for slot, name in zip(sorted(places[name] for name in shared), shared, strict=True):
        order[slot] = places[name]
    if order == sorted(order) or len(set(shared)) < len(shared):
        return graph
    position = {old: new for new, old in enumerate(order)}
    moved = [replace(node, inputs=tuple(position[place] for place in node.inputs)) for node in graph.nodes]
    symbols = _Symbols(_NUMBERED_SYMBOL)
    return CanonicalGraph(
        tuple(
            replace(node, call=symbols.renamed(node.call), type=symbols.renamed(node.type))
            for node in (moved[old] for old in order)
        )
    )


class _Symbols:
    """Numbers size symbols in the order in which they appear."""

    def __init__(self, pattern: re.Pattern[str] = _SYMBOL) -> None:
        self._pattern = pattern
        self._numbers: dict[str, str] = {}

    def renamed(self, text: str) -> str:
        return self._pattern.sub(lambda found: self._numbers.setdefault(found[0], f"${len(self._numbers)}"), text)


def _canonical_node(node: PrintedNode, index: Mapping[str, int], symbols: _Symbols) -> CanonicalNode:
    inputs: dict[int, str] = {}

    def number(found: re.Match[str]) -> str:
        place = index.get(found[0]) if found[0] in node.inputs else None
        return found[0] if place is None else inputs.setdefault(place, f"%{len(inputs)}")

    is_placeholder = not node.target
    is_attribute = node.text.startswith("self.") and "(" not in node.text
    call = _INPUT if is_placeholder else _neutral(_NODE.sub(number, node.text))
    return CanonicalNode(
        target=_INPUT if is_placeholder else "get_attr" if is_attribute else _ATTRIBUTE.sub("self", node.target),
        call=symbols.renamed(call),
        type=symbols.renamed(node.annotation),
        inputs=tuple(inputs),
        name=node.printed_name,
        text=node.text,
        source_line=node.source_line,
    )


def _neutral(call: str) -> str:
    """A call without names of attributes, addresses, folders and numbers of Triton kernels."""
    return without_addresses(_SIDE_TABLE.sub(r"\1", _ATTRIBUTE.sub("self._", call)))


def _output(names: Sequence[str | None], index: Mapping[str, int]) -> CanonicalNode:
    """A node for what a graph returns."""
    inputs = tuple(dict.fromkeys(index[name] for name in names if name is not None and name in index))
    order = {place: f"%{number}" for number, place in enumerate(inputs)}
    values = ", ".join("None" if name is None or name not in index else order[index[name]] for name in names)
    text = f"return ({', '.join(map(str, names))})"
    return CanonicalNode(OUTPUT, f"{OUTPUT}({values})", "", inputs, OUTPUT, text, None)
