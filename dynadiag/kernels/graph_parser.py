"""Parse a printed graph: its nodes, their inputs, types and sizes, and the user's source line of each."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import NamedTuple

from dynadiag.grouping import grouped

_OPENING, _CLOSING = "([{", ")]}"
_NAME = re.compile(r"(?<![\w.'\"])[A-Za-z_]\w*")
_STRING = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
_MAX_CHARS = 10_000  # characters of one size expression
_MAX_VALUE = 1 << 62


def split_arguments(text: str, start: int = 0) -> list[str]:
    """Split the arguments of a call. `start` is the position after its opening bracket; the closing one ends them."""
    found, depth, begin, quote = [], 0, start, ""
    for place in range(start, len(text)):
        char = text[place]
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in _OPENING:
            depth += 1
        elif char in _CLOSING and depth:
            depth -= 1
        elif not depth and (char == "," or char in _CLOSING):
            found.append(text[begin:place].strip())
            begin = place + 1
            if char != ",":
                break
    return [argument for argument in found if argument]


def without_strings(text: str) -> str:
    return _STRING.sub("''", text)


def names_in(text: str) -> list[str]:
    """Return the plain names in an expression, without attributes and parts of strings."""
    return _NAME.findall(without_strings(text))


def rename(text: str, names: Mapping[str, str]) -> str:
    """Return an expression with some of its plain names replaced."""
    return _NAME.sub(lambda found: names.get(found[0], found[0]), text)


def element_count(sizes: Iterable[str], hints: Mapping[str, int]) -> int | None:
    """Return the product of sizes, with `hints` as the values of symbols. None if one is unknown."""
    values = [evaluate_size(one, hints) for one in sizes]
    return None if None in values else prod(value for value in values if value is not None)


def evaluate_size(expression: str, hints: Mapping[str, int]) -> int | None:
    """Return the value of a size such as ``16*s0``, with `hints` as the values of symbols, or None.

    The expression is parsed, not evaluated: integers, names, ``+ - * // %`` and brackets.
    """
    if len(expression) > _MAX_CHARS:
        return None
    try:
        value = _evaluate(_parsed(expression.strip()), hints)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return value if value is not None and abs(value) < _MAX_VALUE else None


def _parsed(expression: str) -> ast.expr:
    """Parse an expression, again if CPython took another thread's depth for its own (its issue 106905)."""
    with suppress(SystemError):
        return ast.parse(expression, mode="eval").body
    return ast.parse(expression, mode="eval").body


def _evaluate(node: ast.expr, hints: Mapping[str, int]) -> int | None:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return hints.get(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _evaluate(node.operand, hints)
        return None if inner is None else -inner
    if isinstance(node, ast.BinOp):
        return _evaluate_binary(node, _evaluate(node.left, hints), _evaluate(node.right, hints))
    return None


def _evaluate_binary(node: ast.BinOp, left: int | None, right: int | None) -> int | None:
    if left is None or right is None or max(abs(left), abs(right)) >= _MAX_VALUE:
        return None
    if isinstance(node.op, ast.Add):
        return left + right
    if isinstance(node.op, ast.Sub):
        return left - right
    if isinstance(node.op, ast.Mult):
        return left * right
    if isinstance(node.op, ast.FloorDiv):
        return left // right if right else None
    if isinstance(node.op, ast.Mod):
        return left % right if right else None
    return None


_CLASS = re.compile(r"^( *)class ([^\s(]+)\(torch\.nn\.Module\):")
# A prefix may come first: "Backward of forward node: " since 2.15, "ac_graph_id: 2 - PREFER_RECOMPUTE " (checkpoint).
_COMMENT = re.compile(r"^\s*# (?:.*? )?File: (.+?):(\d+) in (?:.*?, code: (.*))?")
STATEMENT = re.compile(r"^\s+([A-Za-z_]\w*)(?:: ?\"([^\"\n]*)\")? = (.*)$")
# An assignment to items, or with an operator: torch prints what it does, then the name of the node for what it changed.
IN_PLACE = re.compile(
    r"^\s+(?P<done>(?P<of>[A-Za-z_]\w*)(?:\[.*?\]| (?P<sign>[-+*/%@&|^]|//|\*\*|<<|>>))(?(sign)| )= .*?)"
    r";\s+(?P<name>[A-Za-z_]\w*)(?:: ?\"(?P<type>[^\"\n]*)\")? = (?P=of)(?P<freed>;.*)?$"
)
_IN_PLACE_OPERATORS = {
    "+": "iadd", "-": "isub", "*": "imul", "/": "itruediv", "//": "ifloordiv", "%": "imod", "**": "ipow",
    "@": "imatmul", "&": "iand", "|": "ior", "^": "ixor", "<<": "ilshift", ">>": "irshift",
}  # fmt: skip
ARGUMENT = re.compile(r"([A-Za-z_]\w*): ?\"([^\"\n]*)\"")
_TARGET = re.compile(r"([A-Za-z_][\w.]*)\(")
_FREED = re.compile(r";\s+(?:\w+ = )+None\s*$")
_CLEARED = re.compile(r"(?:\w+ = )*None\b")  # a statement that only frees nodes
LONE_ARGUMENT = re.compile(r"^\s+([A-Za-z_]\w*): \"([^\"]*)\"")  # one of a long list of placeholders
_TENSOR = re.compile(r"^(\w+)\[([^\]]*)\]")
_BITS = re.compile(r"(\d+)")

# Operators that return a view, by their names in ATen and in Dynamo.
VIEW_OPERATORS = frozenset(
    {
        "view", "reshape", "permute", "transpose", "t", "expand", "squeeze", "unsqueeze", "slice", "select", "split",
        "split_with_sizes", "getitem", "alias", "detach", "as_strided", "diagonal", "unbind", "unfold", "_unsafe_view",
        "lift_fresh", "view_as_real", "view_as_complex", "real", "imag", "movedim", "flatten", "unflatten", "chunk",
        "contiguous", "T", "mT", "swapaxes",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, order=True)
class SourceLine:
    """A line of the user's source."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class TensorType:
    """The type of a tensor as graphs print it: ``f32[2, s0]``. Sizes are expressions."""

    dtype: str
    sizes: tuple[str, ...]

    @property
    def item_size(self) -> int:
        """Bytes of one element."""
        bits = _BITS.search(self.dtype)
        return max(1, int(bits[1]) // 8) if bits else 1

    def element_count(self, hints: Mapping[str, int]) -> int | None:
        """The number of elements, with `hints` as the values of size symbols. None if one is unknown."""
        return element_count(self.sizes, hints)


@dataclass(frozen=True, slots=True)
class PrintedNode:
    """One node of a printed graph.

    `line` is the node's line in the text (1-based), `source_line` the user's line that it was made from and
    `source_text` the text of that line. `subgraph` is the branch or loop body that the node is in. Its name is then
    part of the node's name and of the names of the inputs. `annotation` is the whole type, with strides and device.
    `replaced_lines` are the user's lines of the nodes that a pass put it in the place of, if torch prints no line of
    its own: `source_line` is the first of them.
    """

    name: str
    target: str
    inputs: tuple[str, ...]
    tensor: TensorType | None
    source_line: SourceLine | None
    line: int
    text: str
    subgraph: str = ""
    source_text: str = ""
    annotation: str = ""
    replaced_lines: tuple[SourceLine, ...] = ()

    @property
    def source_lines(self) -> tuple[SourceLine, ...]:
        """Every user's line that it was made from."""
        return self.replaced_lines or ((self.source_line,) if self.source_line is not None else ())

    @property
    def printed_name(self) -> str:
        """The node's name as it is printed in its own graph."""
        return self.name.removeprefix(qualified_name(self.subgraph, ""))

    @property
    def operator(self) -> str:
        """The last part of its target: ``relu`` for ``torch.ops.aten.relu.default``."""
        return operator_of(self.target)

    @property
    def computes(self) -> bool:
        """Whether it makes a new value: it is no placeholder, attribute or view."""
        return bool(self.target) and self.operator not in VIEW_OPERATORS and not self.text.startswith("self.")


@dataclass(frozen=True)
class PrintedGraph:
    """A graph: its nodes by name, in order, placeholders first and subgraphs last.

    `returns` has the name of each output by subgraph; ``""`` is the graph itself.
    """

    nodes: Mapping[str, PrintedNode]
    returns: Mapping[str, tuple[str | None, ...]]

    def root(self, name: str) -> str:
        """Return the node whose memory a node views, or the node itself."""
        seen = set()
        while (node := self.nodes.get(name)) and node.target and not node.computes and node.inputs and name not in seen:
            if node.operator == "getitem" and not self._is_item_of_view(node):
                break
            seen.add(name)
            name = node.inputs[0]
        return name

    def _is_item_of_view(self, node: PrintedNode) -> bool:
        """Whether a node takes an item of views (``split``), not of an operator's results."""
        source = self.nodes.get(node.inputs[0])
        return source is not None and not source.computes and bool(source.target)

    @cached_property
    def users(self) -> dict[str, list[str]]:
        return grouped((name, node.name) for node in self.nodes.values() for name in node.inputs)

    def with_source_lines(self, places: Mapping[str, SourceLine | None]) -> PrintedGraph:
        """Return the graph with other source lines for some nodes. The text of a replaced line is unknown."""
        moved = {name: replace(self.nodes[name], source_line=place, source_text="") for name, place in places.items()}
        return replace(self, nodes={**self.nodes, **moved}) if moved else self

    def enclosing_nodes(self, subgraph: str) -> tuple[str, ...]:
        """Return the nodes that contain a subgraph (``cond``, ``while_loop``), the innermost first."""
        users = self.users.get(subgraph, ())
        return (*users, *(self.enclosing_nodes(self.nodes[subgraph].subgraph) if users else ()))


def operator_of(target: str) -> str:
    """Return the name of an operator in a node's target: ``relu`` of ``torch.ops.aten.relu.default``."""
    parts = target.split(".")
    return parts[3] if parts[:2] == ["torch", "ops"] and len(parts) > 3 else parts[-1]


def qualified_name(subgraph: str, name: str) -> str:
    """Return the name of a subgraph's node or buffer in the whole graph, as Inductor builds it."""
    return f"{subgraph}_{name}" if subgraph else name


def split_lines(text: str) -> list[str]:
    """Split a text at newlines only, as editors count lines. ``splitlines`` also splits at other separators."""
    lines = text.split("\n")
    return lines[:-1] if len(lines) > 1 and not lines[-1] else lines


def parse_graph(text: str) -> PrintedGraph:
    """Parse a graph as ``GraphModule.print_readable`` writes it, with its subgraphs.

    Unknown text is left out, because any version of torch may have written it.
    """
    nodes: dict[str, PrintedNode] = {}
    returns: dict[str, tuple[str | None, ...]] = {}
    for subgraph, first, lines in _split_subgraphs(split_lines(text)):
        own, ends = _parse_lines(lines, first)
        names = {name: qualified_name(subgraph, name) for name in own}
        nodes |= (
            {names[name]: _qualified_node(node, subgraph, names) for name, node in own.items()} if subgraph else own
        )
        returns[subgraph] = tuple(names[name] if name else None for name in ends)
    return PrintedGraph(nodes, returns)


class GraphLine(NamedTuple):
    """What one line of a printed graph is.

    A "comment" names a `source_line`. A "node" line defines `name` by `target`, a "statement" defines no node. The rest
    is "blank" or "other".
    """

    kind: str
    name: str = ""
    target: str = ""
    source_line: SourceLine | None = None


def graph_lines(text: str) -> Iterator[GraphLine]:
    """Yield what each line of a printed graph is, also in text that is no graph."""
    for line in text.split("\n"):
        if found := _COMMENT.match(line):
            yield GraphLine("comment", source_line=SourceLine(found[1], int(found[2])))
        elif not line.strip():
            yield GraphLine("blank")
        elif found := STATEMENT.match(line):
            target = _TARGET.match(found[3])
            node = GraphLine("node", found[1], target[1] if target else "")
            yield GraphLine("other") if _CLEARED.match(found[3]) else node
        elif found := IN_PLACE.match(line):
            yield GraphLine("node", found["name"], _in_place_operator(found))
        elif found := LONE_ARGUMENT.match(line):
            yield GraphLine("node", found[1])
        else:
            yield GraphLine("other" if line.lstrip().startswith(("return ", "#")) else "statement")


def _split_subgraphs(lines: Sequence[str]) -> Iterator[tuple[str, int, Sequence[str]]]:
    """Yield each graph of the text: the subgraph's name, the number of its first line, its lines.

    A subgraph is printed below the graph that contains it, indented one level further.
    """
    path, begin = [""], 0
    for number, line in enumerate(lines):
        if (found := _CLASS.match(line)) and (depth := len(found[1]) // 4):
            yield path[-1], begin + 1, lines[begin:number]
            del path[depth:]
            path.append(qualified_name(path[-1], found[2]))
            begin = number
    yield path[-1], begin + 1, lines[begin:]


def _qualified_node(node: PrintedNode, subgraph: str, names: Mapping[str, str]) -> PrintedNode:
    return replace(
        node,
        name=names[node.name],
        inputs=tuple(names[name] for name in node.inputs),
        text=rename(node.text, names),
        subgraph=subgraph,
    )


def _parse_lines(lines: Sequence[str], first: int) -> tuple[dict[str, PrintedNode], tuple[str | None, ...]]:
    """Parse one graph. Returns the nodes by their printed names, and the names of those that it returns."""
    nodes: dict[str, PrintedNode] = {}
    returns: tuple[str | None, ...] = ()
    place: SourceLine | None = None
    code = ""
    for number, line in enumerate(lines, first):
        if found := _COMMENT.match(line):
            place, code = SourceLine(found[1], int(found[2])), found[3] or ""
        elif not line.strip():
            place, code = None, ""
        elif line.lstrip().startswith("def forward("):
            _add_placeholders(line, number, nodes)
        elif line.lstrip().startswith("return"):
            returns = _returned_names(lines[number - first :], nodes)
        elif found := STATEMENT.match(line):
            _add_node(nodes, found, place, code, number)
        elif found := IN_PLACE.match(line):
            name, annotation, done = found["name"], found["type"] or "", found["done"]
            inputs = tuple(dict.fromkeys(one for one in names_in(done) if one in nodes))
            target, tensor = _in_place_operator(found), parse_tensor(annotation)
            nodes[name] = PrintedNode(
                name, target, inputs, tensor, place, number, done, source_text=code, annotation=annotation
            )
        elif not returns:
            _add_placeholders(line, number, nodes)
    return nodes, returns


def _add_placeholders(line: str, number: int, nodes: dict[str, PrintedNode]) -> None:
    for name, annotation in ARGUMENT.findall(line):
        nodes.setdefault(name, _placeholder(name, annotation, number))


def _placeholder(name: str, annotation: str, number: int) -> PrintedNode:
    return PrintedNode(name, "", (), parse_tensor(annotation), None, number, name, annotation=annotation)


def _add_node(
    nodes: dict[str, PrintedNode], found: re.Match[str], place: SourceLine | None, code: str, number: int
) -> None:
    name, annotation, value = found[1], found[2], _FREED.sub("", found[3]).rstrip("; ")
    if value in nodes or value == "None":
        if value in nodes:  # Dynamo gives a placeholder a second name
            nodes[name] = nodes[value]
        return
    inputs = tuple(dict.fromkeys(one for one in names_in(value) if one in nodes))
    target = _TARGET.match(value)
    nodes[name] = PrintedNode(
        name,
        _call_target(target[1], nodes) if target else _expression_operator(value),
        inputs,
        parse_tensor(annotation or ""),
        place,
        number,
        value,
        source_text=code,
        annotation=annotation or "",
    )


def _in_place_operator(found: re.Match[str]) -> str:
    return _IN_PLACE_OPERATORS[found["sign"]] if found["sign"] else "setitem"


def _call_target(target: str, nodes: Mapping[str, PrintedNode]) -> str:
    """The target of a call. The object of a method call is a node and not part of the target."""
    owner, _, rest = target.partition(".")
    return rest if owner in nodes and rest else target


def _expression_operator(value: str) -> str:
    if value.endswith("]") and "[" in value and not value.startswith("["):
        return "getitem"
    for sign, name in (("@", "matmul"), ("+", "add"), ("-", "sub"), ("*", "mul"), ("/", "truediv")):
        if f" {sign} " in without_strings(value):
            return name
    return value.split(".")[-1] if value.startswith("self.") else value[:40]


def _returned_names(lines: Sequence[str], nodes: Mapping[str, PrintedNode]) -> tuple[str | None, ...]:
    """The names in a return statement, which is one line or has one commented item per line."""
    value = lines[0].strip().removeprefix("return").strip()
    if value in ("(", "["):
        rest = [line.split("#")[0].strip() for line in lines[1:]]
        value = " ".join(rest[: next((n for n, line in enumerate(rest) if line in (")", "]")), len(rest))])
    parts = [part.strip() for part in value.strip("()[]").split(",") if part.strip()]
    return tuple(part if part in nodes else None for part in parts)


def parse_tensor(annotation: str) -> TensorType | None:
    """Parse ``f32[2, s0][s0, 1]cpu``. None if it is no tensor type."""
    found = _TENSOR.match(annotation.strip())
    if found is None:
        return None
    return TensorType(found[1], tuple(part.strip() for part in found[2].split(",") if part.strip()))
