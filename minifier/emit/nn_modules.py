"""Writes modules that cannot be inlined: their constructor call and their state."""

from __future__ import annotations

import ast
from typing import Any

import torch

from minifier.emit.expressions import literal_source
from minifier.emit.tensor_literals import exact_expression
from minifier.errors import EmitError

__all__ = ["module_source"]


def module_source(name: str, module: torch.nn.Module) -> list[str]:
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
