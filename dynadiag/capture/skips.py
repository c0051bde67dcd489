"""Frames that Dynamo leaves to Python before it traces anything, of which the trace has no event."""

from __future__ import annotations

from types import CodeType
from typing import Any

from dynadiag.capture.breaks import is_plumbing

__all__ = ["describe"]

_RESUMED = "torch_dynamo_resume_in_"
_TOLD = "Dynamo decided to skip the frame while tracing"  # it has a compile of its own
# Of whole functions thousands are left as they should be (no tensor in them, library code); not for these reasons.
_OF_ACCOUNT = (
    "dynamo tracing is disabled",
    "torch dispatch mode",
    "torchdynamo_debug_function",
    "an error was suppressed",  # before it was traced (a generator), or while
)


def describe(code: CodeType, reason: str) -> dict[str, Any] | None:
    """What to record of one frame; None where it is torch's or Python's, told elsewhere, or of no account.

    What follows a graph break is always of account: where Dynamo finds no tensor among its locals, nothing of the rest
    of the function is compiled, and nothing else says so.
    """
    resumed = code.co_name.startswith(_RESUMED)
    if is_plumbing(code.co_filename) or reason.startswith(_TOLD):
        return None
    if not resumed and not any(words in reason.lower() for words in _OF_ACCOUNT):
        return None
    named = code.co_name if resumed else code.co_qualname
    return {"file": code.co_filename, "line": code.co_firstlineno, "function": named, "reason": reason}
