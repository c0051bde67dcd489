"""Writes a graph as a Python function: one line per operation, shapes in comments, subgraphs as nested functions.

A module that cannot be inlined is written as its constructor call and its state.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import fx

from minifier.emit.expressions import (
    ARGUMENT_SEPARATOR,
    IN_PLACE,
    INFIX,
    PREFIX,
    argument_source,
    arguments_source,
    index_source,
    literal_source,
    needed_import,
    target_source,
)
from minifier.emit.hops import HOPS
from minifier.emit.identifiers import NameAllocator
from minifier.emit.tensor_literals import exact_expression
from minifier.errors import EmitError
from minifier.torch_private import autocast_blocks
from minifier.triton_launches import kernel_name, launched_kernel

_SHORT = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.bool: "bool",
    torch.complex64: "c64",
}
_INDENT = "    "
# A constant with more values than this is written before the function.
_MAX_INLINE_VALUES = 64
_MAX_LINE = 100


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """The source of a function. `setup` are lines to run before it; `parameters` are in the order of the inputs."""

    name: str
    parameters: tuple[str, ...]
    lines: tuple[str, ...]
    setup: tuple[str, ...]
    imports: frozenset[str]


def write_function(
    module: fx.GraphModule,
    name: str,
    names: NameAllocator,
    shapes: Mapping[fx.Node, Any] | None = None,
    nested: bool = False,
) -> FunctionSource:
    """Write a graph as a function. `shapes` maps nodes to values, for comments. Raises `EmitError`."""
    writer = _Writer(module, names, shapes or {}, nested)
    for node in module.graph.nodes:
        writer.add(node)
    parameters = tuple(writer.parameters)
    lines = (f"def {name}({', '.join(parameters)}):", *(f"{_INDENT}{line}" if line else "" for line in writer.lines))
    return FunctionSource(name, parameters, lines, tuple(writer.setup), frozenset(writer.imports))


class _Writer:
    def __init__(
        self, module: fx.GraphModule, names: NameAllocator, shapes: Mapping[fx.Node, Any], nested_in: bool
    ) -> None:
        self._module = module
        self._nested_in = nested_in
        self._names = names
        self._shapes = shapes
        self._known = names.input_names(module.graph.find_nodes(op="placeholder"))
        self._constants: dict[str, str] = {}
        self.parameters: list[str] = []
        self._ended = False
        self._autocasts = autocast_blocks(module.graph)  # where each ends, and the node at which it begins
        self._first_lines: dict[fx.Node, int] = {}
        self.lines: list[str] = []
        self.setup: list[str] = []
        self.imports: set[str] = set()

    def add(self, node: fx.Node) -> None:
        getattr(self, f"_{node.op}")(node)

    def _placeholder(self, node: fx.Node) -> None:
        self.parameters.append(self._known[node])

    def _get_attr(self, node: fx.Node) -> None:
        where = str(node.target)
        if where not in self._constants:
            value = reduce(getattr, where.split("."), self._module)
            self._constants[where] = self._constant(where.rsplit(".", 1)[-1], value)
        self._known[node] = self._constants[where]

    def _call_function(self, node: fx.Node) -> None:
        if node in self._autocasts.values():
            self._first_lines[node] = len(self.lines)
            return
        if node in self._autocasts:
            self._enclose(self._autocasts[node])
            return
        if node.target is operator.setitem:
            self.lines.append(f"{self._subscript(node)} = {self._write(node.args[2])}")
            return
        if node.target in IN_PLACE and isinstance(self._shapes.get(node.args[0]), torch.Tensor):
            self._known[node] = changed = self._name(node.args[0])
            statement = f"{changed} {IN_PLACE[node.target]} {self._write(node.args[1])}"
            self.lines.extend(_wrap_statement(statement, _comment(self._shapes.get(node))))
            return
        self._assign(node, self._call_text(node))

    def _enclose(self, entered: fx.Node) -> None:
        """Put the lines since an autocast was entered into its ``with``."""
        device, *others = entered.args
        words = zip(("dtype", "enabled", "cache_enabled"), others, (None, True, None), strict=False)
        given = [f"{name}={self._write(value)}" for name, value, default in words if value is not default]
        first = self._first_lines[entered]
        inside = [f"{_INDENT}{line}" if line else "" for line in self.lines[first:]]
        call = f"torch.autocast({', '.join([self._write(device), *given])})"
        self.lines[first:] = [f"with {call}:", *(inside or [f"{_INDENT}pass"])]

    def _call_method(self, node: fx.Node) -> None:
        receiver, *rest = node.args
        text = self._receiver(receiver)
        if not str(node.target).isidentifier():
            raise EmitError(f"a method name that is not one: {node.target!r}")
        self._assign(node, f"{text}.{node.target}({arguments_source(tuple(rest), node.kwargs, self._name)})")

    def _call_module(self, node: fx.Node) -> None:
        where = str(node.target)
        if where not in self._constants:
            value = reduce(getattr, where.split("."), self._module)
            name = self._names.value_name(where.replace(".", "_"))
            self.setup.extend(_module_source(name, value))
            self._constants[where] = name
        self._assign(node, f"{self._constants[where]}({arguments_source(node.args, node.kwargs, self._name)})")

    def _output(self, node: fx.Node) -> None:
        """A single value is returned without a tuple, except from a subgraph, whose caller expects a tuple."""
        returned = node.args[0]
        if isinstance(returned, (tuple, list)) and len(returned) == 1 and not self._nested_in:
            returned = returned[0]
        if isinstance(returned, (tuple, list)) and len(returned) > 1:
            self.lines.append(f"return {', '.join(self._write(value) for value in returned)}")
        elif not self._ended:
            self.lines.append(f"return {self._write(returned)}")

    def _call_text(self, node: fx.Node) -> str:
        function, args = node.target, node.args
        plain = not node.kwargs
        if function is operator.getitem and plain:
            return self._subscript(node)
        if function is getattr and plain and len(args) == 2 and str(args[1]).isidentifier():
            return f"{self._receiver(args[0])}.{args[1]}"
        if function in INFIX and plain and len(args) == 2:
            return f"{self._operand(args[0])} {INFIX[function]} {self._operand(args[1])}"
        if function in PREFIX and plain and len(args) == 1:
            return f"{PREFIX[function]}{self._operand(args[0])}"
        if function is torch.ops.aten.sym_size.int and plain:
            return f"{self._receiver(args[0])}.size({self._write(args[1])})"
        if function in HOPS:
            call = HOPS[function](node, self._name, self._names)
            self.lines.extend(call.before)
            self.imports |= call.imports
            return call.expression
        kernel = launched_kernel(node)
        if kernel is not None:
            return f"{kernel_name(kernel)}[{self._write(node.args)}]({arguments_source((), node.kwargs, self._name)})"
        name = target_source(function)
        self.imports |= needed_import(function, name)
        return f"{name}({arguments_source(args, node.kwargs, self._name)})"

    def _subscript(self, node: fx.Node) -> str:
        return f"{self._receiver(node.args[0])}[{index_source(node.args[1], self._name)}]"

    def _assign(self, node: fx.Node, expression: str) -> None:
        comment = _comment(self._shapes.get(node))
        if self._is_result(node):
            self._ended = True
            expression = f"return {expression}"
        elif node.users:
            self._known[node] = self._names.value_name(node.name)
            expression = f"{self._known[node]} = {expression}"
        self.lines.extend(_wrap_statement(expression, comment))

    def _is_result(self, node: fx.Node) -> bool:
        """Whether the next statement only returns this value: then it needs no name."""
        returned: Any = node.next.args[0] if node.next.op == "output" else None
        if isinstance(returned, (tuple, list)) and len(returned) == 1 and not self._nested_in:
            returned = returned[0]
        return returned is node and len(node.users) == 1

    def _constant(self, wanted: str, value: Any) -> str:
        if isinstance(value, fx.GraphModule):
            return self._nested(wanted, value)
        name = self._names.value_name(wanted)
        if not isinstance(value, torch.Tensor):
            self.lines.append(f"{name} = {argument_source(value, self._name)}")
            return name
        source = exact_expression(value)
        if isinstance(value, torch.nn.Parameter):
            source = f"torch.nn.Parameter({source}, requires_grad={value.requires_grad})"
        if value.numel() <= _MAX_INLINE_VALUES and not isinstance(value, torch.nn.Parameter):
            self.lines.extend(f"{name} = {source}".splitlines())
        else:
            self.setup.append(f"{name} = {source}")
        return name

    def _nested(self, wanted: str, module: fx.GraphModule) -> str:
        name = self._names.value_name(wanted)
        inner = write_function(module, name, self._names, nested=True)
        self.setup.extend(inner.setup)
        self.imports |= inner.imports
        if self.lines and self.lines[-1]:
            self.lines.append("")
        self.lines.extend([*inner.lines, ""])
        return name

    def _write(self, value: Any) -> str:
        return argument_source(value, self._name)

    def _operand(self, value: Any) -> str:
        """Write an operand. A constant that needs parentheses gets them."""
        text = self._write(value)
        return text if isinstance(value, fx.Node) or text[0].isdigit() else f"({text})"

    def _receiver(self, value: Any) -> str:
        """What stands before a dot or an index."""
        text = self._write(value)
        return text if isinstance(value, fx.Node) else f"({text})"

    def _name(self, node: fx.Node) -> str:
        return self._known[node]


def _wrap_statement(text: str, comment: str) -> list[str]:
    """A statement with its comment: on one line, with the comment above, or with one argument per line."""
    line = text.replace(ARGUMENT_SEPARATOR, ", ")
    if len(line + comment) <= _MAX_LINE or not (comment or ARGUMENT_SEPARATOR in text):
        return [line + comment]
    if len(line) <= _MAX_LINE or ARGUMENT_SEPARATOR not in text:
        return [comment.strip(), line]
    before, *between = text.split(ARGUMENT_SEPARATOR)
    head, first = before.split("(", 1)
    *middle, last = [first, *between]
    return [f"{head}({comment}", *(f"{_INDENT}{part}," for part in middle), f"{_INDENT}{last[:-1]},", last[-1]]


def _comment(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return ""
    return f"  # {_SHORT.get(value.dtype, str(value.dtype).removeprefix('torch.'))}[{', '.join(map(str, value.shape))}]"


def _module_source(name: str, module: torch.nn.Module) -> list[str]:
    """Lines that construct a copy of a torch.nn module. Raises `EmitError` for other modules.

    The arguments come from the module's `extra_repr`. They are checked: a module is constructed from them here.
    """
    kind = type(module)
    if getattr(torch.nn, kind.__name__, None) is not kind or next(module.children(), None) is not None:
        raise EmitError(f"the module {kind.__qualname__} is not a plain one of torch.nn: its source is needed")
    args, kwargs = _constructor(module)
    try:
        twin = kind(*args, **kwargs)
    except TypeError as error:
        raise EmitError(f"the module {kind.__name__} does not print its constructor: {error}") from error
    if {k: v.shape for k, v in twin.state_dict().items()} != {k: v.shape for k, v in module.state_dict().items()}:
        raise EmitError(f"the module {kind.__name__} does not print all of its constructor")
    written = ", ".join([*(_argument(a) for a in args), *(f"{k}={_argument(v)}" for k, v in kwargs.items())])
    lines = [f"{name} = torch.nn.{kind.__name__}({written})"]
    state = module.state_dict()
    if state:
        pairs = ", ".join(f"{literal_source(key)}: {exact_expression(value)}" for key, value in state.items())
        lines.append(f"{name}.load_state_dict({{{pairs}}})")
    return lines if module.training else [*lines, f"{name}.eval()"]


def _constructor(module: torch.nn.Module) -> tuple[list[Any], dict[str, Any]]:
    try:
        call = ast.parse(f"made({module.extra_repr()})", mode="eval").body
        if not isinstance(call, ast.Call):
            raise EmitError(f"the module {type(module).__name__} does not print its constructor")
        args = [ast.literal_eval(arg) for arg in call.args]
        return args, {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg}
    except (SyntaxError, ValueError) as error:
        raise EmitError(f"the module {type(module).__name__} does not print its constructor: {error}") from error


def _argument(value: Any) -> str:
    if isinstance(value, tuple):
        return "(" + ", ".join(_argument(v) for v in value) + ("," if len(value) == 1 else "") + ")"
    return literal_source(value)
