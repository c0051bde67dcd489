"""A printed graph as a person writes it: one line for each node, its shape apart, no comments.

torch prints ``h: "f32[2, 32][32, 1]cpu" = torch.nn.functional.relu(l_x_);  l_x_ = None``. The pane shows
``h = relu(x)`` with ``f32[2,32]`` at its right margin. Nothing is lost: strides and users are in the details of a node,
and a key shows the text that torch printed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dynadiag.kernels.graph_parser import IN_PLACE
from dynadiag.recording.records import FAILED_TRACE, Graph
from dynadiag.recording.torch_text.sources import attribute_name, is_input_name

_CLASS = re.compile(r"^ *class ([^\s(]+)\(torch\.nn\.Module\):")
_FORWARD = re.compile(r"^ *def forward\((?:self(?:, )?)?(.*)$")
_COMMENT = re.compile(r"\s+# .*$")  # AOTAutograd says after an input or a result what it is
_CLOSING = {"(": ")", "[": "]"}
_STATEMENT = re.compile(r"^ +([A-Za-z_]\w*)(?:: ?\"([^\"\n]*)\")? = (.*)$")
_ARGUMENT = re.compile(r"([A-Za-z_]\w*)(?:: ?\"([^\"\n]*)\")?(?:, |\):?|,$)")
_FREED = re.compile(r";\s+(?:\w+ = )+None\s*$")
_CLEARED = re.compile(r"(?:\w+ = )*None")  # a statement that only frees nodes
_INPUT_WORD = re.compile(r"(?<![\w.\"'])[lg]_\w+_(?!\w)")
_OPERATOR = re.compile(
    r"(?<![\w.\"'])torch\.(?:(?:nn\.functional|_C\._nn|_C\._special|ops\.aten)\.|ops\.(?=\w+\.\w)|(?=\w+\())"
)
_OVERLOAD = re.compile(r"^(\w+(?:\.\w+)?)\.(?:default|Tensor|Scalar|dim|int|self|correction|dim_IntList)\(")
_TYPE = re.compile(r"^(\w+\[[^\]]*\])")
_INDENT = 4  # columns by which torch indents a level


@dataclass(frozen=True, slots=True)
class ReadableLine:
    """A line, the row of the printed text (from 0) that it stands for, and what stands at the right margin."""

    row: int
    text: str
    margin: str = ""


@dataclass(frozen=True, slots=True)
class _Signature:
    """The arguments of a graph, and the row that they end in."""

    end: int
    arguments: str


def readable_lines(printed: Sequence[str]) -> Iterator[ReadableLine]:
    """Yield the lines of a printed graph in their readable form. None has a margin in a text that is no graph."""
    signatures = dict(_signatures(printed))
    names = _input_names(printed, signatures)
    first = next((row for row in signatures), 0)
    depth = _indent_of(printed[first]) // _INDENT + 1 if signatures else 2
    for row, text in enumerate(printed):
        indent = " " * max(0, _indent_of(text) - depth * _INDENT)
        if row in signatures:
            yield ReadableLine(signatures[row].end, indent + _inputs(signatures[row].arguments, names))
        elif (found := _CLASS.match(text)) and row:
            yield ReadableLine(row, f"{indent}subgraph {found[1]}:")
        elif found := _STATEMENT.match(text):
            # Whether a statement only names an input again, or frees nodes.
            value = found[3]
            if not (_CLEARED.fullmatch(value) is not None or value.partition(";")[0].lower() == found[1].lower()):
                yield ReadableLine(row, f"{indent}{found[1]} = {_expression(found[3], names)}", shape_text(found[2]))
        elif found := IN_PLACE.match(text):
            yield ReadableLine(row, indent + _expression(_in_place(found), names), shape_text(found["type"]))
        elif text.lstrip().startswith("return"):
            yield ReadableLine(row, indent + _expression(_returned(printed, row), names))


def _indent_of(text: str) -> int:
    return len(text) - len(text.lstrip())


def _signatures(printed: Sequence[str]) -> Iterator[tuple[int, _Signature]]:
    """The arguments of each graph, by its first row. torch prints a long list of arguments on lines of their own."""
    for row, text in enumerate(printed):
        if found := _FORWARD.match(text):
            end = row
            while not printed[end].rstrip().endswith(":") and end + 1 < len(printed):
                end += 1
            more = (_COMMENT.sub("", line) for line in printed[row + 1 : end + 1])
            yield row, _Signature(end, found[1] + " ".join(more))


def _returned(printed: Sequence[str], row: int) -> str:
    """The whole return statement that begins in a row. AOTAutograd prints each result on its own line."""
    first = printed[row].strip()
    closing = _CLOSING.get(first[-1])
    end = next((at for at in range(row + 1, len(printed)) if printed[at].strip() == closing), None) if closing else None
    if end is None:
        return first
    results = [_COMMENT.sub("", line).strip().rstrip(",") for line in printed[row + 1 : end]]
    return f"{first}{', '.join(results)}{',' if len(results) == 1 and closing == ')' else ''}{closing}"


def _input_names(printed: Sequence[str], signatures: Mapping[int, _Signature]) -> dict[str, str]:
    """The readable name of each input, such as ``blocks.0.norm1.weight``. No node has the same name."""
    nodes = {found[1] for text in printed if (found := _STATEMENT.match(text))}
    nodes |= {found["name"] for text in printed if (found := IN_PLACE.match(text))}
    arguments = (found[1] for each in signatures.values() for found in _ARGUMENT.finditer(each.arguments))
    short = {_used(name): attribute_name(name) for name in arguments if is_input_name(name)}
    taken = nodes | {name for name, count in Counter(short.values()).items() if count > 1}
    return {name: f"input.{word}" if word in taken else word for name, word in short.items()}


def _used(argument: str) -> str:
    """The name of an argument in the body of a printed graph."""
    return argument[:1].lower() + argument[1:]


def _inputs(signature: str, names: Mapping[str, str]) -> str:
    """The inputs, with those of the call before the parameters of modules."""
    arguments = (one[1] for one in _ARGUMENT.finditer(signature) if one[1] != "self")
    found = [names.get(_used(name), name) for name in arguments]
    own = [name for name in found if "." not in name.removeprefix("input.")]
    return f"inputs: {', '.join(own + [name for name in found if name not in own]) or 'none'}"


def _in_place(found: re.Match[str]) -> str:
    """What a statement does in place, and the name that the result has further down."""
    is_read = re.search(rf"\b{found['name']}\b", found["freed"] or "") is None
    return f"{found['done']};  {found['name']} = {found['of']}" if is_read else found["done"]


def _expression(text: str, names: Mapping[str, str]) -> str:
    """An expression without the nodes that it frees, with the short names of operators and inputs."""
    text = _INPUT_WORD.sub(lambda found: names.get(found[0], found[0]), _FREED.sub("", text))
    return _OVERLOAD.sub(r"\1(", _OPERATOR.sub("", text))


def shape_text(annotation: str | None) -> str:
    """Return the type and shape of ``f32[2, 32][32, 1]cpu``, without strides and device."""
    found = _TYPE.match(annotation or "")
    return found[1].replace(", ", ",") if found else (annotation or "")


# The title by stage; of any other stage it is "STAGE graph".
_STAGE_NAMES = {
    "dynamo": "Dynamo's graph",
    FAILED_TRACE: "traced before the failure",
    "before_pre_grad": "before pre-grad passes",
    "pre_grad": "after pre-grad passes",
    "joint": "joint graph",
    "before_joint": "before joint-graph passes",
    "after_joint": "after joint-graph passes",
    "before_post_grad": "{direction}, before passes",
    "post_grad": "{direction}, after passes",
}


@dataclass(frozen=True, slots=True)
class GraphTitle:
    """The title of a graph. ``direction``: "forward", "backward" or "inference"; "" before AOTAutograd split it."""

    text: str
    direction: str


def graph_titles(graphs: Sequence[Graph]) -> tuple[GraphTitle, ...]:
    return tuple(
        GraphTitle(
            _STAGE_NAMES.get(graph.stage, "{stage} graph").format(direction=direction or "graph", stage=graph.stage),
            direction,
        )
        for graph, direction in zip(graphs, _graph_directions(graphs), strict=True)
    )


def _graph_directions(graphs: Sequence[Graph]) -> Iterator[str]:
    """The direction of each graph of a compile.

    Inductor takes the forward graph through its stages, and then, or at the first call of it, the backward graph: a
    stage that the forward graph had comes again.
    """
    own, seen, has_backward = "", set[str](), False
    for graph in graphs:
        if graph.stage in ("forward", "inference"):
            own, seen, has_backward = graph.stage, set(), False
        has_backward = has_backward or graph.stage == "backward"
        yield "backward" if graph.stage == "backward" or (graph.stage in seen and has_backward) else own
        seen.add(graph.stage)
