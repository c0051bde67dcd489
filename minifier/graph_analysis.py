"""Analyzes a graph for reduction: the value of each node, what can be removed, and what must stay together.

leaf      a placeholder or an attribute (parameter, constant, subgraph): kept while something reads it
support   a size, a symbolic number, a flag: kept if a kept part reads it and it can be computed; otherwise its
          value is written into its users as a literal
part      an operation, or several that must stay together
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from minifier.errors import ReductionError
from minifier.tensors import compact_copy, copy_values, leaves, map_leaves, same_metadata, storage_key, tensors_in
from minifier.torch_private import in_transform, is_transform_boundary, is_transformed, restore_torch_state
from minifier.triton_launches import written_storages

_NON_TENSOR_TYPES = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.Size,
    type(Ellipsis),
)


class TransformOnly:
    """Placeholder for a value that exists only inside a vmap or grad."""


# Operations that pass random state on as a tensor, such as seeds from a table of seeds.
_RANDOM_STATE = ("inductor_seed", "inductor_lookup_seed", "inductor_random", "inductor_randint", "philox", "rngprims")


@dataclass(frozen=True, slots=True)
class GraphAnalysis:
    """The analysis of a graph. Nodes are numbered by their position in the graph."""

    module: fx.GraphModule
    nodes: tuple[fx.Node, ...]
    index_of: dict[fx.Node, int]
    values: tuple[Any, ...]
    groups: tuple[tuple[int, ...], ...]  # the nodes of each part; parts are in the order of their last node
    group_of: dict[int, int]
    inseparable_groups: tuple[tuple[int, ...], ...]  # as `groups`, but nodes on one written storage are not grouped
    reads: tuple[tuple[int, ...], ...]  # node -> the nodes that are its arguments
    substitutes: tuple[tuple[int, ...], ...]  # node -> its arguments with the same shape, dtype, device and layout
    returned: tuple[int, ...]  # the nodes that the graph returns

    def with_smallest_groups(self) -> GraphAnalysis:
        """The same graph with the smallest possible parts, for the last sweep."""
        return replace(self, groups=self.inseparable_groups, group_of=_group_of(self.inseparable_groups))

    def is_support(self, node: int) -> bool:
        """Whether a node is a size, a symbolic number or a flag."""
        return node not in self.group_of and self.nodes[node].op not in ("placeholder", "get_attr", "output")


class _Recorder(fx.Interpreter):
    """Runs a graph and keeps every value. `clone`: nodes whose values must be copied, because they change later."""

    def __init__(self, module: fx.GraphModule, nodes: dict[fx.Node, int], clone: frozenset[int]) -> None:
        super().__init__(module)
        self._nodes = nodes
        self._clone = clone
        self.values: dict[int, Any] = {}
        self.writes: dict[int, frozenset[int]] = {}

    def run_node(self, n: fx.Node) -> Any:
        place = self._nodes[n]
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        read = tensors_in((args, kwargs))
        before = [_version(tensor) for tensor in read]
        value = super().run_node(n)
        changed = {storage_key(t) for t, v in zip(read, before, strict=True) if _version(t) != v}
        written = written_storages(n, kwargs) | {key for key in changed if key is not None}
        if written:
            self.writes[place] = written
        self.values[place] = map_leaves(lambda leaf: self._keep(place, leaf), value)
        return value

    def _keep(self, place: int, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if is_transformed(leaf) or (leaf.requires_grad and in_transform()):
            return TransformOnly
        detached = leaf.detach()
        if place in self._clone:
            detached = compact_copy(detached)
        if leaf.requires_grad and (detached.is_floating_point() or detached.is_complex()):
            detached.requires_grad_()
        return detached


def interpret(module: fx.GraphModule, inputs: Sequence[Any], clone: frozenset[int] = frozenset()) -> _Recorder:
    """Run a copy of the graph once on copies of the inputs, and keep every value. Torch's random state is restored.

    Raises whatever the graph raises.
    """
    own = copy.deepcopy(module)
    recorder = _Recorder(own, {node: i for i, node in enumerate(own.graph.nodes)}, clone)
    with restore_torch_state():
        recorder.run(*copy_values(inputs), enable_io_processing=False)
    return recorder


def analyze(module: fx.GraphModule, inputs: Sequence[Any]) -> GraphAnalysis:
    """Analyze a graph. Raises `ReductionError` if the graph does not run uncompiled on these inputs."""
    nodes = tuple(module.graph.nodes)
    place = {node: i for i, node in enumerate(nodes)}
    try:
        recorder = interpret(module, inputs)
        on = _written_nodes(recorder)
        if on:
            recorder.values = interpret(module, inputs, frozenset(n for group in on for n in group)).values
    except Exception as error:
        raise ReductionError(
            f"the graph does not run uncompiled on these inputs ({type(error).__name__}: {_first_line(error)})"
        ) from error
    values = tuple(recorder.values.get(i) for i in range(len(nodes)))
    reads = tuple(tuple(place[arg] for arg in node.all_input_nodes) for node in nodes)
    firm, groups = _partition(nodes, place, values, on)
    return GraphAnalysis(
        module=module,
        nodes=nodes,
        index_of=place,
        values=values,
        groups=groups,
        group_of=_group_of(groups),
        inseparable_groups=firm,
        reads=reads,
        substitutes=tuple(_substitutes(i, nodes, reads, values) for i in range(len(nodes))),
        returned=tuple(i for i in reads[-1] if nodes[-1].op == "output"),
    )


def _written_nodes(recorder: _Recorder) -> list[list[int]]:
    """For each storage that a node writes to: the nodes with values on it, and the nodes that write to it."""
    written = frozenset[int]().union(*recorder.writes.values()) if recorder.writes else frozenset()
    return [
        sorted(
            place
            for place, value in recorder.values.items()
            if any(storage_key(t) == key for t in tensors_in(value)) or key in recorder.writes.get(place, ())
        )
        for key in sorted(written)
    ]


def _partition(
    nodes: tuple[fx.Node, ...], place: dict[fx.Node, int], values: tuple[Any, ...], written: list[list[int]]
) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]:
    """The smallest parts, and the parts in which nodes on one written storage are joined too."""
    operations = [i for i, node in enumerate(nodes) if _is_operation(node, values[i])]
    parent = {i: i for i in operations}
    for i in operations:
        for user in _inseparable(nodes[i], values[i]):
            _union(parent, i, place[user])
    transforms = [i for i in operations if is_transform_boundary(nodes[i])]
    for other in transforms[1:]:
        _union(parent, transforms[0], other)
    firm = _disjoint_sets(parent)
    for group in written:
        inside = [i for i in group if i in parent]
        for other in inside[1:]:
            _union(parent, inside[0], other)
    return firm, _disjoint_sets(parent)


def _disjoint_sets(parent: dict[int, int]) -> tuple[tuple[int, ...], ...]:
    members: dict[int, list[int]] = {}
    for i in parent:
        members.setdefault(_root(parent, i), []).append(i)
    return tuple(sorted((tuple(group) for group in members.values()), key=lambda group: group[-1]))


def _group_of(groups: tuple[tuple[int, ...], ...]) -> dict[int, int]:
    return {node: part for part, group in enumerate(groups) for node in group}


def _is_operation(node: fx.Node, value: Any) -> bool:
    if node.op in ("placeholder", "get_attr", "output"):
        return False
    plain = value is not None and all(isinstance(leaf, _NON_TENSOR_TYPES) for leaf in leaves(value))
    return not plain or is_transform_boundary(node)


def _inseparable(node: fx.Node, value: Any) -> list[fx.Node]:
    """The users that must stay with the node: items of its tuple, users of its handle or of its random state."""
    if any(leaf is TransformOnly for leaf in leaves(value)):
        return [user for user in node.users if user.op != "output"]
    if isinstance(value, (tuple, list)):
        return [user for user in node.users if user.target is operator.getitem]
    if not isinstance(value, (torch.Tensor, *_NON_TENSOR_TYPES)):
        return [user for user in node.users if user.op != "output"]
    if _is_random_state(node):
        return [user for user in node.users if _is_random_state(user)]
    return []


def _is_random_state(node: fx.Node) -> bool:
    return any(name in str(node.target) for name in _RANDOM_STATE)


def _substitutes(
    i: int, nodes: tuple[fx.Node, ...], reads: tuple[tuple[int, ...], ...], values: tuple[Any, ...]
) -> tuple[int, ...]:
    """The arguments that can replace a node. For an item of a tuple: the arguments of the node that made the tuple."""
    sources = reads[i]
    if nodes[i].target is operator.getitem and sources and isinstance(values[sources[0]], (tuple, list)):
        sources = reads[sources[0]]
    return tuple(s for s in sources if same_metadata(values[s], values[i]))


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _union(parent: dict[int, int], one: int, other: int) -> None:
    if other in parent:
        a, b = _root(parent, one), _root(parent, other)
        parent[max(a, b)] = min(a, b)


def _root(parent: dict[int, int], i: int) -> int:
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0]
