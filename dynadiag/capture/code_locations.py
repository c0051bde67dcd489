"""The location of code (compiled callables, skipped frames), and whose it is: the user's, torch's or Python's."""

from __future__ import annotations

import functools
import inspect
import sysconfig
from pathlib import Path
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

import torch

from dynadiag.recording.code_origin import path_in_packages
from dynadiag.recording.records import GENERATOR

_PLAIN_MODULES = ("builtins", "types", "torch._ops")  # their types have plain attributes, without code of the user's
_RESUME_PREFIX = "torch_dynamo_resume_in_"
_AT_LIMIT = ("custom frame execution strategy", "exception-directed frame execution")  # to 2.14; from 2.15 on
_SKIPPED_WHILE_TRACING = "Dynamo decided to skip the frame while tracing"  # such a frame has a compile in the trace
# Dynamo skips thousands of functions for good reasons (no tensor in them, library code). Only these are reported.
_SUPPRESSED = "an error was suppressed"  # before tracing (a generator) or during it
SKIPPED_FOR_MODE = "torch dispatch mode"
_REPORTED_REASONS = (
    "dynamo tracing is disabled",
    SKIPPED_FOR_MODE,
    "torchdynamo_debug_function",
    _SUPPRESSED,
)


def describe_callable(called: Any, caller: FrameType) -> dict[str, Any]:
    """Return ``file``, ``line`` and ``function`` of the code that a call runs.

    That is a module's ``forward`` or a partial's function. If it is not Python code, file and line are those of the
    user's innermost frame from ``caller`` outwards. Nothing of the user's code is called.
    """
    found = _code_location(called)
    callers = [] if found["file"] else user_callers(caller)
    return {**callers[-1], "function": found["function"]} if callers else found


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
        return frame_data(code.co_filename, code.co_firstlineno, name)
    return frame_data(None, None, name)


def describe_code(code: CodeType) -> dict[str, Any]:
    """Return ``file``, ``line`` and ``function`` of a code object."""
    return frame_data(code.co_filename, code.co_firstlineno, code.co_qualname)


def describe_skipped_frame(code: CodeType, reason: str) -> dict[str, Any] | None:
    """Return the data of one skipped frame.

    None if the frame is torch's or Python's, has an event elsewhere, or is left for an ordinary reason. A resume
    function after a graph break is always recorded: when Dynamo finds no tensor among its locals, the rest of the
    function is not compiled, and nothing else says so.
    """
    resumed = code.co_name.startswith(_RESUME_PREFIX)
    if is_stdlib_or_torch(code.co_filename) or reason.startswith(_SKIPPED_WHILE_TRACING):
        return None
    if not resumed and not any(words in reason.lower() for words in _REPORTED_REASONS):
        return None
    name = code.co_name if resumed else code.co_qualname
    why = GENERATOR if code.co_flags & inspect.CO_GENERATOR and _SUPPRESSED in reason else reason
    return {**frame_data(code.co_filename, code.co_firstlineno, name), "reason": why}


def is_left_while_tracing(reason: str) -> bool:
    """Whether torch leaves the function for what it met while it traced it: a break, an exception, the limit."""
    return any(words in reason for words in (_SUPPRESSED, *_AT_LIMIT, _SKIPPED_WHILE_TRACING))


def user_callers(frame: FrameType | None) -> list[dict[str, Any]]:
    """Return the user's frames from ``frame`` outwards, outermost first.

    torch leaves them out of a raised break, and the innermost ones out of the stack of a compile.
    """
    found = []
    while frame is not None:
        is_ours = str(frame.f_globals.get("__name__")).partition(".")[0] == "dynadiag"
        if not is_ours and not is_stdlib_or_torch(frame.f_code.co_filename):
            found.append(frame_data(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return found[::-1]


def frame_data(file: str | None, line: int | None, function: str | None) -> dict[str, Any]:
    """Return a frame as our events have it; None for what is not known."""
    return {"file": file, "line": line, "function": function}


@functools.cache
def is_stdlib_or_torch(file: str) -> bool:
    """Whether a file belongs to Python's standard library, to torch, or to the interpreter.

    A package that is installed inside the standard library's folder is a library of the user's.
    """
    path = Path(file)
    stdlib, torch_ = Path(sysconfig.get_path("stdlib")), Path(torch.__file__).parent
    if file.startswith("<frozen ") or path.is_relative_to(torch_):
        return True
    return path.is_relative_to(stdlib) and path_in_packages(f"/{path.relative_to(stdlib)}") is None
