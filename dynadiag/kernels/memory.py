"""What the graphs of a training step hold in memory from the forward to the backward: a pure function of the recording.

AOTAutograd cuts the joint graph in two: what the backward graph takes by the name of a node of the forward graph is
saved between them (`torch._functorch.partitioners`). Bytes follow from the shape and the dtype of the tensor that owns
the memory: several saved views of one tensor count once, with all of its bytes. Where Inductor saves a copy of an input
in another layout (channels last), the return statement of the generated code shows it. What a kernel needs while it
runs is in neither.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from dynadiag.kernels.call_nodes import parse_operations
from dynadiag.kernels.graph_parser import PrintedGraph, PrintedNode, SourceLine, TensorType, parse_graph
from dynadiag.kernels.module_parser import ParsedModule, parse_module
from dynadiag.kernels.read_modules import MAX_GRAPH_BYTES, size_hints
from dynadiag.kernels.source_lines import CompileContext, locate
from dynadiag.recording.code_origin import original_name
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Graph

_OWNED = re.compile(r"_(parameters|buffers)_\w+_$")  # Dynamo's placeholder of a parameter or buffer of a module
_ROOT = re.compile(r"^[LG]\['\w+'\]\.?")
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)|(?<=\[)\d+(?=\])")

# Operators that read each element once and cost no more than reading it: torch recomputes them in a fused kernel.
_POINTWISE = frozenset(
    {
        "_to_copy", "abs", "add", "arange", "bitwise_and", "bitwise_not", "bitwise_or", "clamp", "clamp_max",
        "clamp_min", "clone", "convert_element_type", "cos", "div", "eq", "erf", "exp", "expm1", "full", "full_like",
        "ge", "gelu", "gt", "iota", "le", "log", "log1p", "logical_and", "logical_not", "lt", "maximum", "minimum",
        "mul", "ne", "neg", "pow", "reciprocal", "relu", "rsqrt", "scalar_tensor", "sigmoid", "sign", "silu", "sin",
        "sqrt", "square", "sub", "tanh", "where",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SavedTensors:
    """Activations that one line saves for the backward, alike but for the module. `bytes` is of all together.

    `module` is the path of the module from the compiled one, with ``*`` for what differs; None if unknown. `nodes` are
    those of the forward graph that own the memory. `bytes` is None where a size has no recorded value.
    """

    nodes: tuple[str, ...]
    bytes: int | None
    operator: str
    dtype: str
    shape: str
    file: str | None
    line: int | None
    module: str | None


@dataclass(frozen=True, slots=True)
class Saving:
    """What a change would free of what is saved. `how` is "no_grad", "recompute" or "half".

    "no_grad": no backward is wanted. "recompute": the pointwise results that follow from others that stay saved.
    "half": the float32 activations in half precision, a bound: some operators need float32 (`torch.autocast`).
    """

    how: str
    bytes: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GraphMemory:
    """What one call of a compiled training graph holds, in bytes.

    `activations` and `inputs` are saved from the forward to the backward, `tangents` come into the backward and
    `gradients` out of it. `parameters` are those of modules, with buffers, whether saved or not. Tensors with a size
    that was not recorded are counted in `unknown` and nowhere else.
    """

    compile_id: str
    function: str
    file: str | None
    line: int | None
    activations: int
    inputs: int
    parameters: int
    gradients: int
    tangents: int
    unknown: int
    saved: tuple[SavedTensors, ...]
    savings: tuple[Saving, ...]


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a program's compiled graphs: each pair of a forward and a backward, and all parameters once.

    `inference` counts the graphs without a backward, `unlowered` the compiles with no graph later than Dynamo's.
    """

    parameters: int
    graphs: tuple[GraphMemory, ...]
    inference: int
    unlowered: int


def read_memory(recording: Recording) -> Memory:
    """Return what the compiled graphs of a recording hold."""
    reader = _Reader(recording)
    graphs = tuple(reader.training_graphs())
    inference = recording.graphs_at("inference")
    for graph in inference:
        reader.add_parameters(graph, reader.parse(graph))
    lowered = recording.lowered()
    unlowered = {graph.compile_id for graph in recording.graphs_at("dynamo")} - lowered
    return Memory(sum(reader.parameters.values()), graphs, len(inference), len(unlowered))


@dataclass
class _Reader:
    """Reads pairs of graphs, and remembers the parameters, which several compiles of a model share."""

    recording: Recording
    parameters: dict[object, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._graphs = self.recording.graphs()
        self._hints = size_hints(self.recording.symbols())
        self._compiles = {item.compile_id: item for item in self.recording.compiles()}

    def parse(self, graph: Graph | None) -> PrintedGraph:
        if graph is None or self.recording.event(graph.event).payload_size > MAX_GRAPH_BYTES:
            return PrintedGraph({}, {})
        return parse_graph(self.recording.payload(graph.event))

    def training_graphs(self) -> Iterator[GraphMemory]:
        """The pairs in the order of their backward graphs. DDP's compiles have several."""
        for backward in self._graphs:
            if backward.stage == "backward" and (forward := self._before(backward, "forward")) is not None:
                yield self._pair(forward, backward)

    def _before(self, graph: Graph, stage: str) -> Graph | None:
        """The last graph of a stage before another of the same compile."""
        earlier = (one for one in self._graphs if (one.compile_id, one.stage) == (graph.compile_id, stage))
        return max((one for one in earlier if one.event < graph.event), key=lambda one: one.event, default=None)

    def add_parameters(self, graph: Graph, parsed: PrintedGraph) -> dict[str, str]:
        """Count the parameters of a lowered graph. Returns Dynamo's name of each of its placeholders that is one.

        Both graphs take the same values in the same order, unless AOTAutograd adds or splits some (DDP, subclasses).
        """
        own = _placeholders(parsed)
        given = _placeholders(self.parse(self._before(graph, "dynamo")))
        if [node.tensor for node in own] != [node.tensor for node in given]:
            return {}
        names = {node.name: of.name for node, of in zip(own, given, strict=True) if _OWNED.search(of.name)}
        compiled = self._compiles.get(graph.compile_id)
        frame = (compiled.file, original_name(compiled.function)) if compiled else graph.compile_id
        for node in own:
            if node.name in names:
                self.parameters[frame, names[node.name], node.tensor] = self.size(graph, node.tensor) or 0
        return names

    def size(self, graph: Graph, tensor: TensorType | None) -> int | None:
        """Bytes of a tensor. None if a size is unknown."""
        elements = tensor.element_count(self._hints.get(graph.compile_id, {})) if tensor else None
        return None if elements is None or tensor is None else elements * tensor.item_size

    def _pair(self, of: Graph, backward: Graph) -> GraphMemory:
        sources = self._dynamo_sources(of)
        forward = self._located(of, sources)
        ends = self.parse(backward)
        taken = _placeholders(ends)
        saved = [node for node in taken if node.name in forward.nodes]
        owners = list(dict.fromkeys(forward.root(node.name) for node in saved if node.tensor))
        parameters = self.add_parameters(of, forward)
        copied = self._copied(of, forward)
        placeholders = {node.name for node in _placeholders(forward)} - copied
        activations = [
            _at_first_use(forward.nodes[name], forward) if name in copied else forward.nodes[name]
            for name in owners
            if name not in placeholders
        ]
        returned = forward.returns.get("", ())
        results = {forward.root(name) for name in returned[: len(returned) - len(saved)] if name}
        sizes = {node.name: self.size(of, node.tensor) for node in (*forward.nodes.values(), *ends.nodes.values())}
        totals = _Totals(sizes)
        compiled = self._compiles.get(of.compile_id)
        return GraphMemory(
            of.compile_id,
            compiled.function if compiled else "",
            compiled.file if compiled else None,
            compiled.line if compiled else None,
            totals.sum(node.name for node in activations),
            totals.sum(name for name in owners if name in placeholders and name not in parameters),
            totals.sum(parameters),
            totals.sum(dict.fromkeys(ends.root(name) for name in ends.returns.get("", ()) if name)),
            totals.sum(node.name for node in taken if node.tensor and node.name not in forward.nodes),
            totals.unknown,
            _group(activations, forward, sizes, self._modules(of, activations, sources)),
            _savings(forward, activations, sizes, {*parameters, *owners} & placeholders, results),
        )

    def _copied(self, graph: Graph, forward: PrintedGraph) -> set[str]:
        """The placeholders of which the generated code returns another buffer, a copy in the layout that it uses."""
        events = self.recording.events("inductor_output_code", compile_id=graph.compile_id)
        after = next((event for event in events if event.index > graph.event), None)
        module = parse_module(self.recording.payload(after.index)) if after else ParsedModule()
        own, made = forward.returns.get("", ()), module.returns.get("", ())
        if len(own) != len(made):  # another backend, or code in C++
            return set()
        inputs = {node.name for node in _placeholders(forward)}
        origins = (module.slices.get(name or "", name) for name in made)
        return {
            name
            for name, origin in zip(own, origins, strict=True)
            if name in inputs and origin in module.buffers.keys() - inputs
        }

    def _dynamo_sources(self, graph: Graph) -> Mapping[str, tuple[str, ...]]:
        """The Dynamo nodes of each node, as Inductor reported them; none where another backend compiled."""
        events = self.recording.events("dynadiag_origins", compile_id=graph.compile_id)
        after = next((event for event in events if event.index > graph.event), None)
        return parse_operations(self.recording.payload(after.index)).dynamo_sources if after else {}

    def _located(self, graph: Graph, sources: Mapping[str, tuple[str, ...]]) -> PrintedGraph:
        dynamo = self._before(graph, "dynamo")
        lookups = self.recording.cache_lookups(graph.compile_id)
        around = CompileContext(
            dynamo=self.parse(dynamo),
            dynamo_nodes=self.recording.nodes(dynamo.index) if dynamo else (),
            dynamo_sources=sources,
            from_cache=any(one.cache == "aot_autograd" and one.outcome == "hit" for one in lookups),
        )
        return locate(self.parse(graph), around)

    def _modules(
        self, graph: Graph, nodes: Iterable[PrintedNode], sources: Mapping[str, tuple[str, ...]]
    ) -> dict[str, str]:
        """The path of the innermost module that was being called, of each node for which it is known."""
        events = list(self.recording.events("dynadiag_graph", compile_id=graph.compile_id))
        before = [event for event in events if event.index < graph.event]
        if not before:
            return {}
        try:
            recorded = msgspec.json.decode(self.recording.payload(before[-1].index), type=_RecordedGraph)
        except msgspec.MsgspecError:  # a damaged event, or one of another version
            return {}
        called: dict[int | None, list[str]] = dict(enumerate(recorded.modules))
        paths = {node.name: _ROOT.sub("", path[-1]) for node in recorded.nodes if (path := called.get(node.modules))}
        origins = ((node.name, next(iter(sources.get(node.name, ())), "")) for node in nodes)
        return {name: paths[origin] for name, origin in origins if origin in paths}


class _RecordedNode(msgspec.Struct):
    name: str
    modules: int | None = None


class _RecordedGraph(msgspec.Struct):
    """The part of a recorded graph that says which module each node is of (`dynadiag.capture.graphs`)."""

    nodes: list[_RecordedNode]
    modules: list[list[str]]


@dataclass
class _Totals:
    """Sums of sizes. Those that are unknown are counted instead."""

    sizes: Mapping[str, int | None]
    unknown: int = 0

    def sum(self, names: Iterable[str]) -> int:
        values = [self.sizes.get(name) for name in names]
        self.unknown += values.count(None)
        return sum(value for value in values if value is not None)


def _placeholders(graph: PrintedGraph) -> list[PrintedNode]:
    return [node for name, node in graph.nodes.items() if not node.target and not node.subgraph and name == node.name]


def _at_first_use(node: PrintedNode, graph: PrintedGraph) -> PrintedNode:
    """A placeholder with the line of the first node that reads it."""
    lines = (graph.nodes[name].source_line for name in graph.users.get(node.name, ()))
    return replace(node, source_line=next((line for line in lines if line), None))


def _group(
    nodes: Iterable[PrintedNode],
    graph: PrintedGraph,
    sizes: Mapping[str, int | None],
    modules: Mapping[str, str],
) -> tuple[SavedTensors, ...]:
    """The activations of each line, operator and shape in one row where only numbers in their modules differ."""
    groups: defaultdict[tuple[SourceLine | None, str, str, TensorType | None], list[PrintedNode]] = defaultdict(list)
    for node in nodes:
        pattern = _NUMBER.sub("*", modules.get(node.name, ""))
        groups[node.source_line, pattern, _producer(node, graph), node.tensor].append(node)
    rows = [_row(group, key[2], sizes, modules) for key, group in groups.items()]
    return tuple(sorted(rows, key=lambda row: -(row.bytes or 0)))


def _row(
    group: list[PrintedNode], operator: str, sizes: Mapping[str, int | None], modules: Mapping[str, str]
) -> SavedTensors:
    first = group[0]
    tensor = first.tensor or TensorType("?", ())
    place = first.source_line or SourceLine("", 0)
    each = sizes[first.name]
    paths = dict.fromkeys(modules[node.name] for node in group if node.name in modules)
    return SavedTensors(
        tuple(node.name for node in group),
        None if each is None else each * len(group),
        operator,
        tensor.dtype,
        f"[{', '.join(tensor.sizes)}]",
        place.file or None,
        place.line or None,
        _common_path(list(paths)) if paths else None,
    )


def _producer(node: PrintedNode, graph: PrintedGraph) -> str:
    """The operator of a node; of an item of several results, the operator that has them; of a placeholder, a copy."""
    if not node.target:
        return "layout copy"
    return graph.nodes[node.inputs[0]].operator if node.operator == "getitem" and node.inputs else node.operator


def _common_path(paths: list[str]) -> str:
    """``blocks.*.ln`` of ``blocks.0.ln`` and ``blocks.1.ln``, which are alike but for numbers."""
    parts = zip(*(path.split(".") for path in paths), strict=True)
    return ".".join(part[0] if len(set(part)) == 1 else "*" for part in parts)


def _savings(
    forward: PrintedGraph,
    activations: list[PrintedNode],
    sizes: Mapping[str, int | None],
    kept: Collection[str],
    results: Collection[str],
) -> tuple[Saving, ...]:
    """What each change would free. What the forward returns is the program's own, whether saved or not.

    `kept` are the placeholders that stay in memory in any case: parameters and what is saved of the inputs.
    """
    freed = [node for node in activations if node.name not in results]
    wide = [node.name for node in freed if node.tensor and node.tensor.dtype == "f32"]
    changes = (
        ("no_grad", 1, [node.name for node in freed]),
        ("recompute", 1, _recomputable(forward, activations, sizes, kept, results)),
        ("half", 2, wide),
    )
    savings = (
        Saving(how, sum(sizes[name] or 0 for name in names) // share, tuple(names)) for how, share, names in changes
    )
    return tuple(saving for saving in savings if saving.bytes)


def _recomputable(
    forward: PrintedGraph,
    activations: list[PrintedNode],
    sizes: Mapping[str, int | None],
    kept: Collection[str],
    results: Collection[str],
) -> list[str]:
    """The activations that pointwise operators make of what stays saved, chosen one by one, the largest first."""
    staying = {node.name for node in activations} | set(kept)
    dropped: list[str] = []
    for node in sorted(activations, key=lambda node: -(sizes[node.name] or 0)):
        if node.name not in results and _follows(node.name, forward, staying - {node.name}):
            staying.remove(node.name)
            dropped.append(node.name)
    return dropped


def _follows(name: str, graph: PrintedGraph, known: Collection[str]) -> bool:
    """Whether pointwise operators and views make a value of those that are known."""
    open_, seen = [name], set[str]()
    while open_:
        node = graph.nodes[open_.pop()]
        if node.name in seen or graph.root(node.name) in known:
            continue
        seen.add(node.name)
        if not node.target or (node.computes and node.operator not in _POINTWISE):
            return False
        open_ += node.inputs
    return True
