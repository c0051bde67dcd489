"""The steps of a rank in its own order, compiles and collectives.

Ranks that are alike share their steps, so a job of a thousand ranks needs the memory of its few different ones.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, replace
from functools import cached_property

from dynadiag.diff import CanonicalGraph, CanonicalNode
from dynadiag.explanation.guard_text import input_names
from dynadiag.recording.code_origin import original_name
from dynadiag.recording.records import Break, Collective, Compile, Frame, Recompile, SkippedFrame

__all__ = [
    "COLLECTIVES",
    "POINT_TO_POINT",
    "CollectiveStep",
    "CompileStep",
    "GraphContent",
    "GuardedValue",
    "RankTrace",
    "Step",
    "UnseenStep",
    "is_size",
    "kind_of_type",
    "short_type",
]

COLLECTIVES = "_c10d_functional"  # the namespace of collectives in graphs
POINT_TO_POINT = ("send", "recv")  # a rank may still be in its last one
_NOT_COLLECTIVES = ("wait_tensor", "_wrap_tensor_autograd")
_LAYOUT = re.compile(r"(?<=\])\[.*$")  # strides and device, after dtype and sizes
_INTEGER = re.compile(r"(?<![\w.%$'#])-?\d+(?![\w.'])")


@dataclass(frozen=True)
class GraphContent:
    """One of Dynamo's graphs, with process groups numbered in the order in which the process made them.

    ``shape`` is the same for ranks that compute the same on shards of their own: it is without the whole numbers in
    calls, which are ``numbers``, and without ``types``. Types of what collectives make are in it.
    """

    graph: CanonicalGraph

    @cached_property
    def shape(self) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
        return tuple(
            (_INTEGER.sub("#", node.call), node.type if _is_collective(node) else kind_of_type(node.type), node.inputs)
            for node in self.graph.nodes
        )

    @cached_property
    def masked(self) -> CanonicalGraph:
        """The graph as `shape` has it, to find the first node that differs."""
        pairs = zip(self.graph.nodes, self.shape, strict=True)
        return CanonicalGraph(tuple(replace(node, call=call, type=kind) for node, (call, kind, _) in pairs))

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        return tuple(int(text) for node in self.graph.nodes for text in _INTEGER.findall(node.call))

    @cached_property
    def types(self) -> tuple[str, ...]:
        return tuple(node.type for node in self.graph.nodes)

    @cached_property
    def collectives(self) -> tuple[CanonicalNode, ...]:
        """The nodes that are collectives, in order."""
        return tuple(node for node in self.graph.nodes if _is_collective(node))


def _is_collective(node: CanonicalNode) -> bool:
    return COLLECTIVES in node.target and not node.target.rpartition(".")[2].startswith(_NOT_COLLECTIVES)


def kind_of_type(type_: str) -> str:
    """A tensor type without its sizes and strides: its dtype and its number of dimensions."""
    dtype, bracket, rest = type_.partition("[")
    sizes = rest.partition("]")[0]
    return f"{dtype}[{sizes.count(',') + bool(sizes.strip())}]" if bracket else type_


def short_type(type_: str) -> str:
    """A tensor type without its strides and its device."""
    return _LAYOUT.sub("", type_)


def is_size(node: CanonicalNode) -> bool:
    """Whether a node is a size that may change."""
    return node.type.startswith("Sym(")


@dataclass(frozen=True, slots=True)
class GuardedValue:
    """A guard without ids of objects, and the user's line that it is for."""

    source: str
    expression: str
    file: str | None
    line: int | None


@dataclass(frozen=True)
class CompileStep:
    """One compile, with what is compared of it. ``unseen`` collectives of compiled code or C++ began before it, since
    the last that the program issued.
    """

    compile: Compile
    recompile: Recompile | None
    breaks: tuple[Break, ...]
    graphs: tuple[GraphContent, ...]
    guards: tuple[GuardedValue, ...]
    unseen: int = 0

    def input_name(self, node: CanonicalNode) -> str:
        """An input of a graph as the program writes it."""
        return input_names([node.name], (guard.source for guard in self.guards))[0]

    @property
    def label(self) -> tuple[object, ...]:
        """What it is a compile of."""
        return "compile", self.compile.file, self.compile.line, original_name(self.compile.function)

    @cached_property
    def key(self) -> tuple[object, ...]:
        """What alike compiles share."""
        return (
            *self.label,
            self.compile.outcome,
            self.compile.cache,
            self.recompile is not None,
            tuple((each.gb_type, each.span.file, each.span.line) for each in self.breaks),
            tuple(graph.shape for graph in self.graphs),
        )

    @cached_property
    def details(self) -> tuple[object, ...]:
        """What may differ between shards."""
        return tuple((graph.numbers, graph.types) for graph in self.graphs), self.guards


@dataclass(frozen=True)
class CollectiveStep:
    """One collective that the program issued itself. Its group is numbered as in graphs.

    ``statement`` is the text of its line, empty where the source was not recorded, ``loop_end`` the last line of the
    loop that it is in.
    """

    collective: Collective
    group: str
    statement: str = ""
    loop_end: int | None = None

    @property
    def label(self) -> tuple[object, ...]:
        """What operation it is, on which group."""
        return "collective", self.collective.op, self.group

    @cached_property
    def key(self) -> tuple[object, ...]:
        """What alike collectives share."""
        item = self.collective
        return (*self.label, item.sizes, item.dtypes, item.peer)

    @property
    def details(self) -> tuple[object, ...]:
        """The line, which differs where ranks come to a collective in branches of their own."""
        return self.collective.file, self.collective.line


@dataclass(frozen=True)
class UnseenStep:
    """Collectives of one group that compiled code or C++ began, such as DDP's: only their number is known.

    It is ``open`` if the process may have been about to begin more: it did not end by itself, and nothing follows.
    """

    group: str
    count: int
    open: bool

    @property
    def label(self) -> tuple[object, ...]:
        """What it is a number of."""
        return "unseen", self.group

    @property
    def key(self) -> tuple[object, ...]:
        """What alike steps share."""
        return (*self.label, None if self.open else self.count)

    @property
    def details(self) -> tuple[object, ...]:
        """How many there were at least."""
        return (self.count,)


Step = CompileStep | CollectiveStep | UnseenStep


@dataclass(frozen=True)
class RankTrace:
    """The steps of one rank, without sends and receives: ranks have different ones by design.

    ``times`` is when each collective among the steps began, in seconds since the epoch by the host's clock. ``last`` is
    the last collective of all that the program issued, ``stood`` where the program stood still after that. ``issued``
    is the number of all collectives, ``seconds`` what all compiles took together.
    """

    steps: tuple[Step, ...]
    times: array[float]
    last: Collective | None
    stood: Frame | None
    issued: int
    stances: frozenset[str]
    skipped: tuple[SkippedFrame, ...]
    disabled: bool
    world_size: int | None
    backend: str | None
    seconds: float

    @cached_property
    def key(self) -> tuple[object, ...]:
        """What alike ranks share."""
        return tuple((step.key, step.details) for step in self.steps)

    @property
    def compiles(self) -> tuple[CompileStep, ...]:
        """The compiles among the steps."""
        return tuple(step for step in self.steps if isinstance(step, CompileStep))
