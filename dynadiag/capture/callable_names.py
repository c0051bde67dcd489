"""The name and location of what the user compiled, when it is a callable object and not a function."""

from __future__ import annotations

import functools
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

import torch

from dynadiag.capture.breaks import is_stdlib_or_torch

__all__ = ["describe_callable"]

_PLAIN_MODULES = ("builtins", "types", "torch._ops")  # their types have plain attributes, without code of the user's


def describe_callable(called: Any, caller: FrameType) -> dict[str, Any]:
    """Return ``file``, ``line`` and ``function`` of the code that a call runs.

    That is a module's ``forward`` or a partial's function. If it is not Python code, file and line are those of the
    user's innermost frame from ``caller`` outwards. Nothing of the user's code is called.
    """
    found = _code_location(called)
    return found if found["file"] else {**found, **_user_line_of(caller)}


def _user_line_of(frame: FrameType | None) -> dict[str, Any]:
    while frame is not None:
        own = str(frame.f_globals.get("__name__")).partition(".")[0] == "dynadiag"
        if not own and not is_stdlib_or_torch(frame.f_code.co_filename):
            return {"file": frame.f_code.co_filename, "line": frame.f_lineno}
        frame = frame.f_back
    return {}


def _code_location(called: Any) -> dict[str, Any]:
    if type(called) is functools.partial:
        inner = _code_location(called.func)
        return {**inner, "function": f"partial({inner['function']})"}
    if isinstance(called, torch.nn.Module):
        return _function_location(_class_attribute(type(called), "forward"), f"{type(called).__qualname__}.forward")
    if type(called).__module__ in _PLAIN_MODULES:
        return _function_location(called, str(getattr(called, "__qualname__", called)))
    return _function_location(_class_attribute(type(called), "__call__"), f"{type(called).__qualname__}.__call__")


def _class_attribute(kind: type, name: str) -> Any:
    """The attribute of a class, or of the first of its bases that defines it."""
    return next((vars(one)[name] for one in kind.__mro__ if name in vars(one)), None)


def _function_location(function: Any, name: str) -> dict[str, Any]:
    code = getattr(function, "__code__", None) if isinstance(function, FunctionType | MethodType) else None
    if isinstance(code, CodeType):
        return {"file": code.co_filename, "line": code.co_firstlineno, "function": name}
    return {"file": None, "line": None, "function": name}
