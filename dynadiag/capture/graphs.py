"""Write a graph that Dynamo gives to its backend as data from which it can be rebuilt.

Nodes have op, target, arguments and a description of their value. Tensors have shape, stride, dtype, device,
``requires_grad`` and the number of their storage, which shows inputs that share memory. "stack" and "modules" are
numbers in lists of the stacks and of the modules that were being called. Nothing is code: targets are names. Arguments
are JSON; anything that JSON lacks is an object with one key:

    {"%": "relu"}            a node            {"t": [1, 2]}          a tuple
    {"dtype": "float32"}     a torch.dtype     {"device": "cpu"}      a torch.device
    {"slice": [a, b, c]}     a slice           {"sym": "s0 + 1"}      a symbolic number
    {"float": "nan"}         nan, inf, -inf    {"?": "text"}          anything else: it cannot be rebuilt
"""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from dynadiag.torch_private import capture as torch_private

_FILE = re.compile(r'(?m)^ *File "([^"\n]+)"')  # in a stack as Python prints it
_MAX_LIST_ITEMS = 1_000  # elements of a list argument; a longer list is written as its length


def graph_json(graph: fx.Graph, owner: torch.nn.Module | None = None) -> str:
    """Return a graph and the subgraphs of its owner as one JSON text, one node per line, so that it can be diffed."""
    stacks: dict[str, int] = {}
    modules: dict[tuple[str, ...], int] = {}
    storages: dict[int, int] = {}
    encoded = (_encode_node(node, stacks, modules, storages) for node in graph.nodes)
    nodes = [json.dumps(node, separators=(",", ":")) for node in encoded]
    subgraphs = {
        name: json.loads(graph_json(child.graph, child))
        for name, child in (owner.named_children() if owner is not None else ())
        if isinstance(child, fx.GraphModule)
    }
    parts = [
        '"nodes": [\n' + ",\n".join(nodes) + "\n]",
        '"stacks": ' + json.dumps(list(stacks)),
        '"modules": ' + json.dumps(list(modules)),
        '"symbols": ' + json.dumps(_size_symbols(graph)),
        '"subgraphs": ' + json.dumps(subgraphs),
    ]
    return "{" + ",\n".join(parts) + "}"


def printed_graph(graph: fx.Graph) -> str:
    """Return a graph as torch prints it in its trace (``GraphModule.print_readable``). It may lack its output."""
    code = graph.python_code("self", verbose=True, include_stride=True, include_device=True).src.lstrip("\n")
    return f"class GraphModule(torch.nn.Module):\n{textwrap.indent(code, '    ')}"


def source_files(graph: fx.Graph) -> list[str]:
    """Return the files of the lines that made the nodes: those of functions that Dynamo inlined too."""
    stacks = dict.fromkeys(node.meta.get("stack_trace") or "" for node in graph.nodes)
    return list(dict.fromkeys(file for stack in stacks for file in _FILE.findall(stack)))


def _encode_node(
    node: fx.Node, stacks: dict[str, int], modules: dict[tuple[str, ...], int], storages: dict[int, int]
) -> dict[str, Any]:
    stack = node.meta.get("stack_trace")
    calls = tuple(str(path) for path, _ in node.meta.get("nn_module_stack", {}).values())
    value = node.meta.get("example_value", node.meta.get("val"))
    data: dict[str, Any] = {"name": node.name, "op": node.op, "target": target_name(node.target)}
    if node.args:
        data["args"] = [encode_argument(argument) for argument in node.args]
    if node.kwargs:
        data["kwargs"] = {name: encode_argument(argument) for name, argument in node.kwargs.items()}
    if value is not None:
        data["value"] = _encode_value(value, storages)
    if stack:
        data["stack"] = stacks.setdefault(stack, len(stacks))
    if calls:
        data["modules"] = modules.setdefault(calls, len(modules))
    return data


def target_name(target: Any) -> str:
    """Return a name that a closed list can resolve: ``aten.relu.default``, ``torch.relu``, ``add``."""
    if isinstance(target, str):
        return target
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return f"torch.ops.{target}"
    module = getattr(target, "__module__", None)
    name = getattr(target, "__qualname__", None) or getattr(target, "__name__", None) or type(target).__name__
    return f"{module}.{name}" if module else str(name)


def encode_argument(value: Any) -> Any:
    """Encode an argument as JSON (see the table above)."""
    if isinstance(value, fx.Node):
        return {"%": value.name}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or type(value) in (bool, int, float, str):
        return value
    for kind, encoder in _ENCODERS:
        if isinstance(value, kind):
            return encoder(value)
    return {"?": type(value).__qualname__}


def _encode_list(value: list[Any]) -> Any:
    if len(value) > _MAX_LIST_ITEMS:
        return {"?": f"list of {len(value)}"}
    return [encode_argument(item) for item in value]


_ENCODERS: list[tuple[type | tuple[type, ...], Callable[[Any], Any]]] = [
    (torch.Size, lambda value: {"t": _encode_list(list(value))}),
    (tuple, lambda value: {"t": _encode_list(list(value))}),
    (list, _encode_list),
    (dict, lambda value: {"dict": [[encode_argument(key), encode_argument(item)] for key, item in value.items()]}),
    (
        slice,
        lambda value: {
            "slice": [encode_argument(value.start), encode_argument(value.stop), encode_argument(value.step)]
        },
    ),
    (torch.dtype, lambda value: {"dtype": str(value).removeprefix("torch.")}),
    (torch.device, lambda value: {"device": str(value)}),
    (torch.layout, lambda value: {"layout": str(value).removeprefix("torch.")}),
    (torch.memory_format, lambda value: {"memory_format": str(value).removeprefix("torch.")}),
    ((torch.SymInt, torch.SymFloat, torch.SymBool), lambda value: {"sym": str(value.node.expr)}),
    (complex, lambda value: {"complex": [value.real, value.imag]}),
    (type(...), lambda _: {"ellipsis": True}),
]


def _encode_value(value: Any, storages: dict[int, int]) -> Any:
    if isinstance(value, torch.Tensor):
        return _encode_tensor(value, storages)
    if isinstance(value, (tuple, list)):
        return [_encode_value(item, storages) for item in value]
    return encode_argument(value)


def _encode_tensor(value: torch.Tensor, storages: dict[int, int]) -> dict[str, Any]:
    data: dict[str, Any] = {
        "shape": [plain_size(size) for size in value.shape],
        "dtype": str(value.dtype).removeprefix("torch."),
        "device": str(value.device),
    }
    if value.layout is torch.strided:
        data["stride"] = [plain_size(step) for step in value.stride()]
        if (storage := _storage_id(value)) is not None:
            data["storage"] = storages.setdefault(storage, len(storages))
    else:
        data["layout"] = str(value.layout).removeprefix("torch.")
    if value.requires_grad:
        data["requires_grad"] = True
    return data


def _storage_id(value: torch.Tensor) -> int | None:
    """The identity of a tensor's storage, or None if it has none of its own (inside vmap, some subclasses)."""
    try:
        return int(value.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return None


def plain_size(size: Any) -> int | str:
    """Return a size; of a symbolic one its text, because to ask for its value adds a guard."""
    return size if type(size) is int else str(size)


def _size_symbols(graph: fx.Graph) -> dict[str, dict[str, str]]:
    """The range and the example value of each size symbol of the graph."""
    for node in graph.nodes:
        value = node.meta.get("example_value", node.meta.get("val"))
        env = getattr(getattr(value, "fake_mode", None), "shape_env", None)
        if env is not None:
            return torch_private.size_symbols(env)
    return {}
