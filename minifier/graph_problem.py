"""The reduction of a graph as a problem of parts: every subset of the parts is a graph that can be run."""

from __future__ import annotations

import copy
import hashlib
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import torch
from torch import fx

from minifier.graph_analysis import GraphAnalysis
from minifier.rewiring import Dataflow, Rewiring
from minifier.search import PartSelection
from minifier.tensors import compact_copy, copy_values, map_leaves, storage_key, value_bytes
from minifier.torch_private import restore_torch_state

Fails = Callable[[fx.GraphModule, list[Any]], bool]
FailsEach = Callable[[Sequence[tuple[fx.GraphModule, list[Any]]]], list[bool]]


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A graph and inputs for it. An oracle gets copies of both."""

    module: fx.GraphModule
    inputs: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class CaseOracle:
    """Says which cases fail, by the caller's `fails`, or by `each` where several are asked for at once.

    Random state and grad mode are restored afterwards. An exception is kept in `errors` and counts as False.
    """

    fails: Fails
    each: FailsEach | None = None
    errors: list[Exception] = field(default_factory=list)

    def fails_each(self, cases: Sequence[Case]) -> list[bool]:
        """Whether each case fails. The oracle may change the cases."""
        asked = [(case.module, list(case.inputs)) for case in cases]
        if (each := self.each) is not None and len(asked) > 1:
            return self._ask(lambda: each(asked), len(asked))
        return [failed for case in asked for failed in self._ask(partial(self._fails_alone, *case), 1)]

    def _fails_alone(self, module: fx.GraphModule, inputs: list[Any]) -> list[bool]:
        return [self.fails(module, inputs)]

    def _ask(self, ask: Callable[[], list[bool]], count: int) -> list[bool]:
        try:
            with restore_torch_state():
                return [bool(failed) for failed in ask()]
        except Exception as error:  # noqa: BLE001  the caller's oracle may raise anything on a graph
            self.errors.append(error)
            return [False] * count


class GraphProblem:
    """The parts of a graph with an oracle; implements `minifier.search.PartsProblem`."""

    def __init__(self, anatomy: GraphAnalysis, inputs: Sequence[Any], oracle: CaseOracle) -> None:
        self.analysis = anatomy
        self.dataflow = Dataflow(anatomy)
        self.parts = tuple(range(len(anatomy.groups)))
        self._inputs = dict(zip(_placeholders(anatomy), inputs, strict=True))
        self._oracle = oracle
        self._producers = [self.dataflow.producers(part) for part in self.parts]
        self._origin = case_key(Case(anatomy.module, tuple(inputs)))
        self._last_rewiring: tuple[PartSelection, Rewiring] | None = None

    def key(self, candidate: PartSelection) -> str:
        """See `ReductionProblem.key`."""
        text = self._origin + self._rewiring(candidate).key()
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def fails_each(self, candidates: Sequence[PartSelection]) -> list[bool]:
        """See `ReductionProblem.fails_each`."""
        rewirings = map(self._rewiring, candidates)
        built = [build_case(self.analysis, each, self._inputs, copy_attributes=True) for each in rewirings]
        return self._oracle.fails_each([Case(case.module, tuple(copy_values(case.inputs))) for case in built])

    def nodes(self, candidate: PartSelection) -> frozenset[int]:
        """The nodes of the parts that the candidate keeps."""
        return self.dataflow.nodes_of(candidate.kept)

    def cost(self, candidate: PartSelection) -> int:
        """The number of operations."""
        return sum(len(self.analysis.groups[part]) for part in candidate.kept)

    def producers(self, part: int) -> frozenset[int]:
        """See `PartsProblem.producers`."""
        return self._producers[part]

    def closure(self, kept: frozenset[int]) -> frozenset[int]:
        """See `PartsProblem.closure`."""
        return self.dataflow.closure(kept)

    def routes(self, part: int) -> tuple[int, ...]:
        """The substitutes of a part with one node, if it has several."""
        group = self.analysis.groups[part]
        ways = self.analysis.substitutes[group[0]] if len(group) == 1 else ()
        return ways if len(ways) > 1 else ()

    def case(self, candidate: PartSelection) -> Case:
        """The graph of a candidate, with its inputs."""
        return build_case(self.analysis, self._rewiring(candidate), self._inputs)

    def _rewiring(self, candidate: PartSelection) -> Rewiring:
        if self._last_rewiring is None or self._last_rewiring[0] != candidate:
            self._last_rewiring = (candidate, self.dataflow.rewire(candidate))
        return self._last_rewiring[1]


def build_case(
    anatomy: GraphAnalysis, rewiring: Rewiring, inputs: dict[int, Any], copy_attributes: bool = False
) -> Case:
    """Build the graph of a rewiring. Its inputs are the original ones that are still read, then one per cut value.

    `inputs` maps the position of a placeholder to its value. `copy_attributes` copies parameters and constants.
    """
    builder = _Builder(anatomy, rewiring, inputs)
    for node in rewiring.nodes:
        builder.add(node)
    return builder.finish(copy_attributes)


class _Builder:
    def __init__(self, anatomy: GraphAnalysis, plan: Rewiring, inputs: dict[int, Any]) -> None:
        self._anatomy = anatomy
        self._plan = plan
        self._graph = fx.Graph()
        self._env: dict[int, fx.Node] = {}
        self._cut: dict[int, Any] = {}
        self._inputs: list[Any] = []
        nodes = anatomy.nodes
        for place in (n for n in plan.nodes if nodes[n].op == "placeholder"):
            self._env[place] = self._graph.node_copy(nodes[place])
            self._inputs.append(inputs[place])
        for place in sorted(n for n, stand in plan.replacements.items() if n == stand):
            self._cut[place] = self._cut_value(place)

    def add(self, place: int) -> None:
        node = self._anatomy.nodes[place]
        if node.op == "placeholder":
            return
        copied = self._graph.create_node(
            node.op,
            node.target,
            map_leaves(self._argument, node.args),
            map_leaves(self._argument, node.kwargs),
            name=node.name,
        )
        copied.meta = copy.copy(node.meta)
        self._env[place] = copied

    def finish(self, own_attributes: bool) -> Case:
        outputs = [leaf for place in self._plan.outputs for leaf in self._output(place)]
        self._graph.output(tuple(outputs))
        attributes = _attributes(self._anatomy.module, self._graph)
        module = fx.GraphModule(copy.deepcopy(attributes) if own_attributes else attributes, self._graph)
        module.meta = dict(self._anatomy.module.meta)
        return Case(module, tuple(self._inputs))

    def _cut_value(self, place: int) -> Any:
        """An input for a tensor, several for a tuple of tensors, a literal for anything else."""
        node, value = self._anatomy.nodes[place], self._anatomy.values[place]
        if isinstance(value, torch.Tensor):
            return self._input(node.name, value, node.meta)
        count = iter(range(1 << 30))
        return map_leaves(
            lambda leaf: self._input(f"{node.name}_{next(count)}", leaf, {}) if torch.is_tensor(leaf) else leaf, value
        )

    def _input(self, name: str, value: torch.Tensor, meta: dict[str, Any]) -> fx.Node:
        self._inputs.append(compact_copy(value))
        placeholder = self._graph.placeholder(name)
        placeholder.meta = copy.copy(meta)
        return placeholder

    def _argument(self, argument: Any) -> Any:
        if not isinstance(argument, fx.Node):
            return argument
        place = self._anatomy.index_of[argument]
        if place in self._env:
            return self._env[place]
        stand = self._plan.replacements[place]
        return self._cut[place] if stand == place else self._env[stand]

    def _output(self, place: int) -> list[fx.Node]:
        value, node = self._anatomy.values[place], self._env[place]
        if not isinstance(value, (tuple, list)):
            return [node]
        tensors = [i for i, item in enumerate(value) if torch.is_tensor(item)]
        return [self._graph.call_function(operator.getitem, (node, i)) for i in tensors]


def _placeholders(anatomy: GraphAnalysis) -> list[int]:
    return [i for i, node in enumerate(anatomy.nodes) if node.op == "placeholder"]


def _attributes(module: torch.nn.Module, graph: fx.Graph) -> dict[str, Any]:
    targets = dict.fromkeys(str(n.target) for n in graph.nodes if n.op in ("get_attr", "call_module"))
    return {target: reduce(getattr, target.split("."), module) for target in targets}


def copy_case(case: Case) -> Case:
    """A copy of the graph with copies of inputs, parameters, constants and subgraphs. Shared attributes stay shared."""
    attributes = copy.deepcopy(_attributes(case.module, case.module.graph))
    graph = fx.Graph()
    graph.output(graph.graph_copy(case.module.graph, {}))
    module = fx.GraphModule(attributes, graph)
    module.meta = dict(case.module.meta)
    return Case(module, tuple(copy_values(case.inputs)))


def copy_to_device(case: Case, device: torch.device) -> Case:
    """A copy on another device: inputs, parameters, constants, and the devices that the graph names."""
    copied = copy_case(case)
    module = copied.module.to(device)
    for graph in (inner.graph for inner in module.modules() if isinstance(inner, fx.GraphModule)):
        for node in graph.nodes:
            node.args = map_leaves(lambda leaf: _leaf_on_device(leaf, device), node.args)
            node.kwargs = map_leaves(lambda leaf: _leaf_on_device(leaf, device), node.kwargs)
        graph.owning_module.recompile()
    return Case(module, tuple(compact_copy(v, device) if isinstance(v, torch.Tensor) else v for v in copied.inputs))


def _leaf_on_device(leaf: Any, device: torch.device) -> Any:
    named = isinstance(leaf, torch.device) or (isinstance(leaf, str) and leaf.partition(":")[0] == "cuda")
    return device if named else leaf


def case_key(case: Case) -> str:
    """A hash of a case for the memo: the graph, the inputs with their values, and which inputs share a storage.

    Constants are left out, because no step of a reduction changes them.
    """
    digest = hashlib.blake2b(_text(case.module).encode(), digest_size=16)
    storages: dict[int, int] = {}
    for value in case.inputs:
        digest.update(_input_bytes(value, storages))
    return digest.hexdigest()


def _text(module: fx.GraphModule) -> str:
    inner = [m for m in _attributes(module, module.graph).values() if isinstance(m, fx.GraphModule)]
    return "\n".join([str(module.graph), *map(_text, inner)])


def _input_bytes(value: Any, storages: dict[int, int]) -> bytes:
    if not isinstance(value, torch.Tensor):
        return repr(value).encode()
    if value.layout is not torch.strided or value.device.type == "meta":
        return repr((value.dtype, tuple(value.shape), str(value.device))).encode()
    key = storage_key(value)
    sharing = (storages.setdefault(key, len(storages)), value.storage_offset()) if key is not None else None
    traits = (value.dtype, tuple(value.shape), value.stride(), value.requires_grad, str(value.device), sharing)
    return repr(traits).encode() + value_bytes(value).numpy().tobytes()


def operation_name(node: fx.Node) -> str:
    """The plain name of an operation: ``view`` for the method and for ``aten.view.default``."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return str(name).partition(".")[0]
