"""Estimate the bytes that a kernel moves and the operations that it does, from the sizes of its inputs and outputs.

Bytes: each buffer counts once when it is read and once when it is written, as with perfect caches. When only a part of
a buffer is used, the estimate is too high. Operations: one per element for pointwise nodes (a transcendental function
counts as one), one per input element for reductions, and the usual formulas for matrix products, convolutions and
attention.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dynadiag.kernels.graph_parser import (
    PrintedGraph,
    PrintedNode,
    TensorType,
    element_count,
    evaluate_size,
    split_arguments,
)
from dynadiag.kernels.module_parser import ModuleCall, ParsedModule, buffer_access, buffer_name

# Operations that a device can do while it moves one byte, measured as docs/kernels.md says (two cores of an x86
# server with AVX-512, float32). Any other device has to be measured: its vendor's peak figures would mislead.
MACHINE_BALANCE = {"cpu": 3.0}

_REDUCTIONS = ("sum", "mean", "var_mean", "var", "amax", "amin", "max", "min", "prod", "any", "all", "argmax", "argmin",
               "cumsum", "cumprod", "logsumexp", "norm", "std")  # fmt: skip
_DTYPE_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1,
           "uint8": 1, "bool": 1, "complex64": 8, "complex128": 16}  # fmt: skip
_MATRIX_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "linear", "matmul", "addmv", "mv")


@dataclass(frozen=True, slots=True)
class RooflineCost:
    """Bytes read and written and floating-point operations of one call. None when a size is unknown.

    `product_dtype` is the dtype of its matrix products as graphs print it ("bf16"), None when it has none.
    """

    bytes_read: int | None = None
    bytes_written: int | None = None
    flops: int | None = None
    product_dtype: str | None = None

    @property
    def bytes_moved(self) -> int | None:
        return None if self.bytes_read is None or self.bytes_written is None else self.bytes_read + self.bytes_written

    @property
    def arithmetic_intensity(self) -> float | None:
        return self.flops / self.bytes_moved if self.bytes_moved and self.flops is not None else None


def roofline_bound(cost: RooflineCost, balance: float | None) -> str | None:
    """Return what limits a kernel on a device that does `balance` operations while it moves one byte.

    "memory" below the balance, "compute" above it, None when either is unknown (the roofline model, Williams et al.
    2009).
    """
    if balance is None or cost.arithmetic_intensity is None:
        return None
    return "memory" if cost.arithmetic_intensity < balance else "compute"


def estimate_cost(
    module: ParsedModule,
    call: ModuleCall,
    nodes: Sequence[str],
    graph: PrintedGraph,
    hints: Mapping[str, int],
    *,
    products: bool = True,
) -> RooflineCost:
    """Estimate the cost of one call that computes `nodes`. `hints` are the values of size symbols.

    Without `products`, matrix products, convolutions and attention count no operations: a generated kernel that is not
    a template only prepares their arguments.
    """
    chosen = [graph.nodes[name] for name in nodes if name in graph.nodes]
    computing = [node for node in chosen if node.computes]
    counts = [_node_flops(node, graph, hints) for node in computing if products or not is_product(node)]
    if not products and (loop := _iteration_count(module, call, hints)) is not None:
        counts = [None if count is None else min(count, loop) for count in counts]
    flops = _sum_known(counts) if chosen else None
    product = next((_product_dtype(node, graph) for node in computing if products and is_product(node)), None)
    if call.is_generated:
        return RooflineCost(*_buffer_traffic(module, call, hints), flops, product)
    if not chosen:  # what it computes is not known
        return RooflineCost()
    return RooflineCost(*_boundary_traffic(computing or chosen, graph, hints), flops, product)


def _iteration_count(module: ParsedModule, call: ModuleCall, hints: Mapping[str, int]) -> int | None:
    """The number of elements that a Triton kernel iterates over, or None.

    It limits the count: the second kernel of a two-step sum lists all nodes of the first one but handles few elements.
    """
    definition = module.definitions.get(call.kernel)
    if definition is None or definition.language != "triton":
        return None
    given = zip(definition.parameters, call.arguments, strict=False)
    sizes = [evaluate_size(argument, hints) for name, argument in given if name.endswith("numel")]
    known = [one for one in sizes if one is not None]
    return math.prod(known) if known and len(known) == len(sizes) else None


def _product_dtype(node: PrintedNode, graph: PrintedGraph) -> str | None:
    """The dtype that a product is computed in: that of its first tensor argument."""
    tensors = (graph.nodes[name].tensor for name in node.inputs if name in graph.nodes)
    return next((tensor.dtype for tensor in tensors if tensor is not None), None)


def _buffer_traffic(module: ParsedModule, call: ModuleCall, hints: Mapping[str, int]) -> tuple[int | None, int | None]:
    """Bytes that a generated kernel reads and writes."""
    role = buffer_access(module, call)
    fresh = {name for name in role.updates if _allocates(module, call, name)}
    reads = dict.fromkeys([*role.reads, *(name for name in role.updates if name not in fresh)])
    writes = dict.fromkeys([*role.writes, *role.updates])
    return _sum_known(_buffer_bytes(module, name, hints) for name in reads), _sum_known(
        _buffer_bytes(module, name, hints) for name in writes
    )


def _allocates(module: ParsedModule, call: ModuleCall, name: str) -> bool:
    """Whether the call itself allocated a buffer that it updates in place, so that there was nothing to read."""
    before = {after: old for old, after in module.reuses.items()}.get(name, name)
    for one in module.calls:
        if one.line >= call.line:
            break
        if before in one.outputs or any(buffer_name(argument) == before for argument in one.arguments):
            return False
    return name in module.reuses.values()


def _buffer_bytes(module: ParsedModule, name: str, hints: Mapping[str, int]) -> int | None:
    buffer = module.buffers.get(name)
    if buffer is None:
        return None
    count = element_count(buffer.sizes, hints)
    return None if count is None else count * _DTYPE_BYTES.get((buffer.dtype or "").removeprefix("torch."), 4)


def _boundary_traffic(
    nodes: Sequence[PrintedNode], graph: PrintedGraph, hints: Mapping[str, int]
) -> tuple[int | None, int | None]:
    """Bytes that a library call reads and writes: the values that enter and leave its nodes."""
    inside = {node.name for node in nodes}
    given = {source for node in nodes for source in node.inputs if graph.root(source) not in inside}
    made = {node.name for node in nodes if not inside.intersection(graph.users.get(node.name, ()))}
    return _sum_known(_value_bytes(graph, name, hints) for name in given), _sum_known(
        _value_bytes(graph, name, hints) for name in made
    )


def _value_bytes(graph: PrintedGraph, name: str, hints: Mapping[str, int]) -> int | None:
    node = graph.nodes[name]
    if node.tensor is not None:
        count = node.tensor.element_count(hints)
        return None if count is None else count * node.tensor.item_size
    items = [graph.nodes[user] for user in graph.users.get(name, ()) if graph.nodes[user].operator == "getitem"]
    return _sum_known(_value_bytes(graph, item.name, hints) for item in items)


def _sum_known(values: Iterable[int | None]) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _node_flops(node: PrintedNode, graph: PrintedGraph, hints: Mapping[str, int]) -> int | None:
    given = [name for one in split_arguments(node.text, node.text.find("(") + 1) if (name := buffer_name(one))]
    inputs = [graph.nodes[name].tensor for name in given if name in graph.nodes]
    tensors = [tensor for tensor in inputs if tensor is not None]
    name = node.operator
    if name in _MATRIX_PRODUCTS:
        return _matmul_flops(node, tensors, hints, bias=name in ("addmm", "baddbmm"))
    if "scaled_dot_product" in name:
        return _attention_flops(tensors, hints, backward="backward" in name)
    if name == "convolution":
        return _convolution_flops(node, tensors, hints)
    if name == "convolution_backward":
        return _convolution_backward_flops(node, tensors, hints)
    if name in _REDUCTIONS:
        return tensors[0].element_count(hints) if tensors else None
    if node.tensor is not None:
        return node.tensor.element_count(hints)
    items = [graph.nodes[user].tensor for user in graph.users.get(node.name, ())]
    counts = [item.element_count(hints) for item in items if item is not None]
    return _sum_known(counts) if counts else 0


def is_product(node: PrintedNode) -> bool:
    """Whether a node is a matrix product, a convolution or attention, which libraries and templates compute."""
    name = node.operator
    return name in _MATRIX_PRODUCTS or "scaled_dot_product" in name or name.startswith("convolution")


def _matmul_flops(
    node: PrintedNode, tensors: Sequence[TensorType], hints: Mapping[str, int], *, bias: bool
) -> int | None:
    """2 m n k operations: the result has m n elements, rows of the first factor have k."""
    factors = tensors[1:] if bias and len(tensors) > 2 else tensors
    if not factors or not factors[0].sizes or node.tensor is None:
        return None
    inner, outer = evaluate_size(factors[0].sizes[-1], hints), node.tensor.element_count(hints)
    return None if inner is None or outer is None else 2 * inner * outer


def _attention_flops(tensors: Sequence[TensorType], hints: Mapping[str, int], *, backward: bool) -> int | None:
    """Two products of (b, h, q, d) with (b, h, k, d): 4 b h q k d. Backward has five (FlashAttention, 2022)."""
    shaped = [tensor for tensor in tensors if len(tensor.sizes) == 4]
    query, key = (shaped[1:3] if backward else shaped[:2]) if len(shaped) > (2 if backward else 1) else (None, None)
    if query is None or key is None:
        return None
    queries, keys = query.element_count(hints), evaluate_size(key.sizes[2], hints)
    return None if queries is None or keys is None else (10 if backward else 4) * queries * keys


def _convolution_backward_flops(
    node: PrintedNode, tensors: Sequence[TensorType], hints: Mapping[str, int]
) -> int | None:
    """As many operations as forward for each requested gradient: of the input, and of the filters."""
    if len(tensors) < 3 or not tensors[2].sizes:
        return None
    requested = split_arguments(node.text, node.text.find("(") + 1)[-1].strip("[]").split(",")
    outer, weights, channels = (
        tensors[0].element_count(hints),
        tensors[2].element_count(hints),
        evaluate_size(tensors[2].sizes[0], hints),
    )
    if not outer or not weights or not channels:
        return None
    return sum(one.strip() == "True" for one in requested[:2]) * 2 * outer * (weights // channels)


def _convolution_flops(node: PrintedNode, tensors: Sequence[TensorType], hints: Mapping[str, int]) -> int | None:
    """Two operations for each element of the result and each element of one output channel's filter."""
    if node.tensor is None or len(tensors) < 2 or not tensors[1].sizes:
        return None
    weights, channels = tensors[1].element_count(hints), evaluate_size(tensors[1].sizes[0], hints)
    outer = node.tensor.element_count(hints)
    return None if not weights or not channels or outer is None else 2 * outer * (weights // channels)
