"""Graphs, one record per stage with the nodes that were recorded as data; and the kernels of generated modules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson

from dynadiag.recording.code_origin import is_user_file
from dynadiag.recording.digest.context import DigestContext, Payload, Reader
from dynadiag.recording.json_values import json_object, list_or_empty
from dynadiag.recording.records import DYNAMO_STAGES, FAILED_TRACE, Event, Graph, GraphNode, Kernel, Node, Span

STAGES = {
    "dynamo_output_graph": "dynamo",
    "dynadiag_failed_trace": FAILED_TRACE,
    "optimize_ddp_split_child": "ddp_split",
    "compiled_autograd_graph": "compiled_autograd",
    "before_pre_grad_graph": "before_pre_grad",
    "after_pre_grad_graph": "pre_grad",
    "aot_joint_graph": "joint",
    "before_joint_graph": "before_joint",
    "after_joint_graph": "after_joint",
    "aot_forward_graph": "forward",
    "aot_backward_graph": "backward",
    "aot_inference_graph": "inference",
    "before_post_grad_graph": "before_post_grad",
    "inductor_post_grad_graph": "post_grad",
}
_PASS = re.compile(r"^(?:PASS_|.*(?:_pre_grad|_post_grad)$)")

_SIGNATURE = re.compile(r"def forward\((.*?)\)(?: -> [^\n]*)?:\n", re.DOTALL)
_ANNOTATED = re.compile(r'\b[A-Za-z_]\w*: "')
_FLATTENED = re.compile(r"(?m)^ +((?:\w+, )+)= fx_pytree\.tree_flatten_spec\(")  # placeholders of the joint graph
_STATEMENT = re.compile(r'(?m)^ +[A-Za-z_]\w*(?:: "[^"\n]*")? = ([^\n]*)')
_RENAMING = re.compile(r"\w+(?:;.*)?$")  # `l_x_ = L_x_` (a second name of a placeholder), or `x = None`
_FRAME = re.compile(r'File "([^"\n]*)", line (\d+), in ')
_DEFINED = re.compile(r"(?m)^(\w+) = async_compile\.(\w+)\(")
_CALLED = re.compile(
    r"(?m)^ +(?:\w+(?:, \w+)* = )?(?:extern_kernels\.(\w+)|torch\.ops\.([\w.]+)|((?:aten|_quantized)\.[\w.]+))\("
)
# The same for a module of the C++ wrapper.
_CPP_DEFINED = re.compile(r"(?m)^extern \"C\"\s+void\s+(\w+)\([^;{}]*\)\s*\{")
_CPP_CALLED = re.compile(r"aoti_torch_(?:cpu|cuda|proxy_executor)_(\w+?)(?:_out)?\(")
_LANGUAGES = {"cpp_pybinding": "cpp"}  # Inductor's name -> ours; other backends keep their names


def stage_of(name: str) -> str | None:
    """Return the stage whose graph an event of this name has, or None."""
    return STAGES.get(name) or (name if _PASS.match(name) else None)


def read_graph(context: DigestContext, event: Event, name: str, payload: Payload) -> Iterator[Graph | GraphNode]:
    """Yield the graph of one stage, and its nodes if the recorder stored them as data."""
    stage = stage_of(name) or name
    kept = context.take("graph", event.compile_id) if stage in DYNAMO_STAGES else None
    index = context.next_index("graph")
    nodes = list(_parse_nodes(kept)) if isinstance(kept, str) else []
    nodes = _locate_torch_frames(context, event.compile_id, nodes)
    if nodes:
        count, ops = len(nodes), sum(map(_computes, nodes))
    else:
        count, ops = _count_nodes(payload())
    yield Graph(index, event.compile_id, stage, count, ops, event.index)
    yield from (GraphNode(index, node) for node in nodes)


def _locate_torch_frames(context: DigestContext, compile_id: str, nodes: list[Node]) -> list[Node]:
    """Dynamo's nodes. If a whole frame is torch's (a container, an optimizer), they get the line that called it."""
    frames = [frame for frame in context.stacks.get(compile_id, ()) if is_user_file(frame.file)]
    files = (node.span.file for node in nodes if _computes(node))
    if not frames or any(file and is_user_file(file) for file in files):
        return nodes
    span = Span(frames[-1].file, frames[-1].line)
    return [replace(node, span=span) if _computes(node) else node for node in nodes]


def _computes(node: Node) -> bool:
    return node.op.startswith("call_")


def _count_nodes(text: str) -> tuple[int, int]:
    """The number of nodes of a printed graph, and how many of them compute.

    Nodes are its placeholders, its statements and its output.
    """
    statements = [value for value in _STATEMENT.findall(text) if not _RENAMING.match(value)]
    attributes = sum(value.startswith("self.") and "(" not in value for value in statements)
    signatures = "".join(_SIGNATURE.findall(text))
    placeholders = len(_ANNOTATED.findall(signatures)) + sum(found.count(",") for found in _FLATTENED.findall(text))
    return placeholders + len(statements) + 1, len(statements) - attributes


def printed_inputs(text: str) -> tuple[str, ...]:
    """Return the names of the inputs of a printed graph, in their order."""
    found = _SIGNATURE.search(text)
    return tuple(each[0].partition(":")[0] for each in _ANNOTATED.finditer(found[1])) if found else ()


def _parse_nodes(text: str) -> Iterator[Node]:
    graph = json_object(text)
    stacks = list_or_empty(graph.get("stacks"))
    for position, data in enumerate(list_or_empty(graph.get("nodes"))):
        if isinstance(data, dict):
            yield _parse_node(position, data, stacks)


def _parse_node(position: int, data: dict[str, Any], stacks: list[Any]) -> Node:
    value = data.get("value")
    tensor = value if isinstance(value, dict) and "shape" in value else {}
    arguments = {"args": data.get("args", []), "kwargs": data.get("kwargs", {})}
    return Node(
        position=position,
        name=str(data.get("name")),
        op=str(data.get("op")),
        target=str(data.get("target")),
        inputs=tuple(_inputs([arguments["args"], arguments["kwargs"]])),
        arguments=orjson.dumps(arguments).decode(),
        shape=f"({', '.join(map(str, tensor['shape']))})" if isinstance(tensor.get("shape"), list) else None,
        dtype=tensor.get("dtype") if isinstance(tensor.get("dtype"), str) else None,
        device=tensor.get("device") if isinstance(tensor.get("device"), str) else None,
        span=innermost_user_span(data.get("stack"), stacks),
    )


def _inputs(arguments: Any) -> Iterator[str]:
    """The names of the nodes that arguments refer to."""
    if isinstance(arguments, dict):
        name = arguments.get("%")
        if isinstance(name, str):
            yield name
        for item in arguments.values():
            yield from _inputs(item)
    elif isinstance(arguments, list):
        for item in arguments:
            yield from _inputs(item)


def innermost_user_span(index: Any, stacks: list[Any]) -> Span:
    """Return the innermost line of the user's in a node's stack, which is named by its index."""
    if not isinstance(index, int) or not 0 <= index < len(stacks) or not isinstance(stacks[index], str):
        return Span(None, None)
    frames = _FRAME.findall(stacks[index])
    chosen = [frame for frame in frames if is_user_file(frame[0])] or frames
    return Span(chosen[-1][0], int(chosen[-1][1])) if chosen else Span(None, None)


def read_kernels(context: DigestContext, event: Event, _metadata: dict[str, Any], payload: Payload) -> Iterator[Kernel]:
    """Yield the kernels of one generated module, each once, in the order of the text."""
    seen: set[str] = set()
    for name, language in _kernel_names(payload()):
        if name not in seen:
            seen.add(name)
            yield Kernel(context.next_index("kernel"), event.compile_id, name, language, event.index)


def _kernel_names(module: str) -> Iterator[tuple[str, str]]:
    for name, kind in _DEFINED.findall(module):
        yield name, _LANGUAGES.get(kind, kind)
    if "inductor_entry_impl(" in module:
        yield from ((name, "cpp") for name in _CPP_DEFINED.findall(module))
        yield from ((name, "extern") for name in _CPP_CALLED.findall(module))
    for extern, op, aten in _CALLED.findall(module):
        yield extern or op or aten, "extern"


# By the name of the artifact, or the kind of an event that is none.
READERS: dict[str, Reader] = {
    "inductor_output_code": read_kernels,
}
