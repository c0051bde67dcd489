"""Writes the arguments and targets of FX nodes as Python. Raises `EmitError` instead of approximating."""

from __future__ import annotations

import json
import math
import operator
import sys
from collections.abc import Callable, Mapping
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

from minifier.errors import EmitError

INFIX: Mapping[Any, str] = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.truediv: "/",
    operator.floordiv: "//",
    operator.mod: "%",
    operator.pow: "**",
    operator.matmul: "@",
    operator.and_: "&",
    operator.or_: "|",
    operator.xor: "^",
    operator.lshift: "<<",
    operator.rshift: ">>",
    operator.eq: "==",
    operator.ne: "!=",
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
}
# Statements for tensors alone: after one on a number, its name would stand for another number.
IN_PLACE: Mapping[Any, str] = {
    getattr(operator, name): f"{sign}="
    for function, sign in INFIX.items()
    if hasattr(operator, name := f"i{function.__name__.rstrip('_')}")
}
PREFIX: Mapping[Any, str] = {operator.neg: "-", operator.invert: "~", operator.pos: "+", operator.not_: "not "}
# Where to look for a function by its name. It is used only if the object there is the same function.
_NAMESPACES: tuple[tuple[str, Any], ...] = (
    ("torch", torch),
    ("torch.nn.functional", torch.nn.functional),
    ("torch.linalg", torch.linalg),
    ("torch.special", torch.special),
    ("torch.fft", torch.fft),
    ("torch._C._nn", torch._C._nn),
    ("torch._C._special", torch._C._special),
    ("torch._C._linalg", torch._C._linalg),
    ("torch._C._fft", torch._C._fft),
    ("torch._C", torch._C),
    ("torch.Tensor", torch.Tensor),
    ("math", math),
    ("operator", operator),
)
# Dynamo's graph calls what these do when they are called as functions.
_PUBLIC: Mapping[Any, str] = {torch._C._set_grad_enabled: "torch.set_grad_enabled"}
_LOADED = {home for home, module in _NAMESPACES if module not in (math, operator)}
_OF_WARNINGS = "_stacklevel"  # a private argument of softmax and others, which only places a warning
# Separates the arguments of a call, where a line may be broken. No literal contains it.
ARGUMENT_SEPARATOR = "\x1f"


def literal_source(value: Any) -> str:
    """A constant as source. Floats are exact; strings are quoted, so that they cannot contain code.

    Raises `EmitError` for anything else.
    """
    if isinstance(value, bool) or value is None:
        return str(value)
    if value is Ellipsis:
        return "..."
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        raise EmitError(f"a symbol ({value}) that no input has: make the sizes static first")
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f'float("{value}")'
    if isinstance(value, int):
        return repr(int(value))
    if isinstance(value, complex):
        finite = math.isfinite(value.real) and math.isfinite(value.imag)
        return repr(value) if finite else f"complex({literal_source(value.real)}, {literal_source(value.imag)})"
    if isinstance(value, str):
        return json.dumps(value)
    return _torch_literal(value)


def _torch_literal(value: Any) -> str:
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return str(value)
    if isinstance(value, torch.device):
        return f'torch.device("{value}")'
    raise EmitError(f"an argument of type {type(value).__name__} cannot be written down")


def argument_source(value: Any, name_of: Callable[[fx.Node], str]) -> str:
    """An argument as source: a node's name, a constant, or a container of these. Raises `EmitError`."""
    if isinstance(value, fx.Node):
        return name_of(value)
    if isinstance(value, slice):
        return "slice(" + ", ".join(argument_source(v, name_of) for v in (value.start, value.stop, value.step)) + ")"
    if isinstance(value, (tuple, list)):
        inner = ", ".join(argument_source(v, name_of) for v in value)
        if isinstance(value, list):
            return f"[{inner}]"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal_source(k)}: {argument_source(v, name_of)}" for k, v in value.items()) + "}"
    return literal_source(value)


def arguments_source(args: tuple[Any, ...], kwargs: Mapping[str, Any], name_of: Callable[[fx.Node], str]) -> str:
    """The arguments of a call as source, joined by `ARGUMENT_SEPARATOR`. Raises `EmitError`."""
    for name in kwargs:
        if not name.isidentifier():
            raise EmitError(f"an argument name that is not one: {name!r}")
    named = [f"{name}={argument_source(value, name_of)}" for name, value in kwargs.items() if name != _OF_WARNINGS]
    return ARGUMENT_SEPARATOR.join([*(argument_source(value, name_of) for value in args), *named])


def index_source(value: Any, name_of: Callable[[fx.Node], str]) -> str:
    """The index between the brackets of `x[...]`."""
    if isinstance(value, tuple) and len(value) > 1:
        return ", ".join(_one_index(v, name_of) for v in value)
    return _one_index(value, name_of)


def _one_index(value: Any, name_of: Callable[[fx.Node], str]) -> str:
    if not isinstance(value, slice):
        return argument_source(value, name_of)
    start, stop, step = (
        "" if v is None else argument_source(v, name_of) for v in (value.start, value.stop, value.step)
    )
    return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"


def target_source(function: Any) -> str:
    """The dotted name of the function that a node calls. Raises `EmitError` for functions that torch does not have."""
    if isinstance(function, OpOverload):
        return f"torch.ops.{function.namespace}.{_op_name(function)}.{function._overloadname}"
    if isinstance(function, OpOverloadPacket):
        return f"torch.ops.{function!s}"
    if isinstance(function, HigherOrderOperator):
        return f"torch.ops.higher_order.{function.__name__}"
    if isinstance(function, BuiltinFunctionType) and function in _PUBLIC:
        return _PUBLIC[function]
    name = getattr(function, "__name__", "")
    for home, module in _NAMESPACES:
        for each in (name, name.removeprefix(f"{home.rpartition('.')[2]}_")):  # torch.linalg.pinv is linalg_pinv
            if each.isidentifier() and getattr(module, each, None) is function:
                return f"{home}.{each}"
    if function in (getattr, setattr):
        return str(name)
    home = str(getattr(function, "__module__", None))
    if home.partition(".")[0] == "torch" and getattr(sys.modules.get(home), name, None) is function:
        return f"{home}.{name}"
    kind = "function" if isinstance(function, (FunctionType, BuiltinFunctionType)) else type(function).__name__
    raise EmitError(
        f"the {kind} {getattr(function, '__qualname__', function)} is not part of torch: its source is needed"
    )


def needed_import(function: Any, name: str) -> set[str]:
    """The modules to import for a `target_source` that ``import torch`` does not load."""
    home = name.rpartition(".")[0]
    known = home in _LOADED or not isinstance(function, FunctionType | BuiltinFunctionType)
    return set() if known or home not in sys.modules else {home}


def _op_name(function: OpOverload) -> str:
    return function._schema.name.split("::", 1)[1]
