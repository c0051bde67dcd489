"""Frames that Dynamo leaves to Python before it traces anything. The trace has no event for them."""

from __future__ import annotations

import inspect
from types import CodeType
from typing import Any

from dynadiag.capture.breaks import is_stdlib_or_torch

__all__ = ["describe_skipped_frame"]

_RESUME_PREFIX = "torch_dynamo_resume_in_"
_SKIPPED_WHILE_TRACING = "Dynamo decided to skip the frame while tracing"  # such a frame has a compile in the trace
# Dynamo rightly leaves thousands of whole functions (no tensor in them, library code). These reasons are reported.
_SUPPRESSED = "an error was suppressed"  # before tracing (a generator) or during it
_REPORTED_REASONS = (
    "dynamo tracing is disabled",
    "torch dispatch mode",
    "torchdynamo_debug_function",
    _SUPPRESSED,
)
# The suppressed error, which torch does not report: "Attempt to trace generator", GB0003.
_GENERATOR = "torch.compile compiles no generator by itself, only where a compiled function goes through it"


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
    named = code.co_name if resumed else code.co_qualname
    why = _GENERATOR if code.co_flags & inspect.CO_GENERATOR and _SUPPRESSED in reason else reason
    return {"file": code.co_filename, "line": code.co_firstlineno, "function": named, "reason": why}
