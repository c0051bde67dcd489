"""Frames that Dynamo leaves to Python before it traces anything, of which the trace has no event."""

from __future__ import annotations

import inspect
from types import CodeType
from typing import Any

from dynadiag.capture.breaks import is_stdlib_or_torch

__all__ = ["describe_skipped_frame"]

_RESUME_PREFIX = "torch_dynamo_resume_in_"
_SKIPPED_WHILE_TRACING = "Dynamo decided to skip the frame while tracing"  # it has a compile of its own
# Of whole functions thousands are left as they should be (no tensor in them, library code); not for these reasons.
_SUPPRESSED = "an error was suppressed"  # before it was traced (a generator), or while
_REPORTED_REASONS = (
    "dynamo tracing is disabled",
    "torch dispatch mode",
    "torchdynamo_debug_function",
    _SUPPRESSED,
)
# What that error is, which torch keeps to itself: "Attempt to trace generator", GB0003.
_GENERATOR = "torch.compile compiles no generator by itself, only where a compiled function goes through it"


def describe_skipped_frame(code: CodeType, reason: str) -> dict[str, Any] | None:
    """What to record of one frame; None where it is torch's or Python's, told elsewhere, or of no account.

    What follows a graph break is always of account: where Dynamo finds no tensor among its locals, nothing of the rest
    of the function is compiled, and nothing else says so.
    """
    resumed = code.co_name.startswith(_RESUME_PREFIX)
    if is_stdlib_or_torch(code.co_filename) or reason.startswith(_SKIPPED_WHILE_TRACING):
        return None
    if not resumed and not any(words in reason.lower() for words in _REPORTED_REASONS):
        return None
    named = code.co_name if resumed else code.co_qualname
    why = _GENERATOR if code.co_flags & inspect.CO_GENERATOR and _SUPPRESSED in reason else reason
    return {"file": code.co_filename, "line": code.co_firstlineno, "function": named, "reason": why}
