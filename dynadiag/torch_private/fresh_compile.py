"""Compiles a function or a module as if nothing of it had been compiled. Read in torch 2.13.0.

Dynamo keeps compiled code at the code object of a function, for all who compile it. A copy of the function has a code
object of its own, so the program's compiled code is neither used nor crowded out. What runs as a frame of its own
behind a graph break has the old code object: there the backend, which is no other one's, keeps the two apart.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch

_LIMIT = 1000  # compiles of one code object, those of the program among them


def compiled_afresh(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``fn`` compiled by Inductor with nothing in its cache."""
    inner = torch._TorchCompileInductorWrapper(None, None, None)

    def inductor(module: Any, inputs: Any) -> Any:
        return inner(module, inputs)

    copied = _copied(fn)
    compiled = torch.compile(copied, backend=inductor)

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            with torch._dynamo.config.patch(recompile_limit=_LIMIT, accumulated_recompile_limit=_LIMIT):
                return compiled(*args, **kwargs)
        finally:
            if isinstance(fn, torch.nn.Module) and copied is not fn:  # what the call set
                vars(fn).update({name: value for name, value in vars(copied).items() if name != "forward"})

    return call


def _copied(fn: Any) -> Any:
    """A copy whose code object is its own. A module's has the same parameters, buffers and hooks."""
    if isinstance(fn, MethodType):
        return MethodType(_copied(fn.__func__), fn.__self__)
    if isinstance(fn, torch.nn.Module) and isinstance(type(fn).forward, FunctionType) and "forward" not in vars(fn):
        made = copy.copy(fn)
        object.__setattr__(made, "forward", MethodType(_copied(type(fn).forward), made))
        return made
    if not isinstance(fn, FunctionType):
        return fn
    made = FunctionType(fn.__code__.replace(), fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    made.__kwdefaults__, made.__qualname__, made.__module__ = fn.__kwdefaults__, fn.__qualname__, fn.__module__
    made.__dict__.update(fn.__dict__)
    return made
