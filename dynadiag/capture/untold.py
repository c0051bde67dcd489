"""The data of a break that torch raised before it traced anything: it is at the head of what was to be compiled."""

from __future__ import annotations

import sys
from types import CodeType
from typing import Any

from dynadiag.capture import names, spans
from dynadiag.capture.breaks import Sources, is_plumbing
from dynadiag.torch_private.untold import Untold

__all__ = ["describe"]


def describe(found: Untold, sources: Sources) -> dict[str, Any]:
    """``gb_type``, torch's text, the place, and the user's stack down to the call."""
    called = found.called
    code = called if isinstance(called, CodeType) else getattr(called, "__code__", None)
    place = _named(called, found)
    source = sources(code.co_filename) if isinstance(code, CodeType) else ()
    if isinstance(code, CodeType) and (span := spans.defined(source, code)):
        place |= {"line": span.line, **spans.in_characters(source, span)}
    stack = [
        {"file": item.filename, "line": item.lineno, "function": item.name}
        for item in found.stack
        if not is_plumbing(item.filename)
    ]
    return {"gb_type": found.gb_type, "text": found.text, "compile_id": found.compile_id, "stack": stack, **place}


def _named(called: Any, found: Untold) -> dict[str, Any]:
    if isinstance(called, CodeType):
        return {"file": called.co_filename, "line": called.co_firstlineno, "function": called.co_qualname}
    return {} if called is None else names.describe(called, found.caller or sys._getframe())
