"""The data of a break that torch raised before it traced anything: it is at the head of what was to be compiled."""

from __future__ import annotations

import sys
from types import CodeType
from typing import Any

from dynadiag.capture import names, spans
from dynadiag.capture.breaks import Sources, frame_data, is_plumbing
from dynadiag.torch_private.untold import Untold

__all__ = ["context_of", "describe"]


def describe(found: Untold, sources: Sources) -> dict[str, Any]:
    """``gb_type``, torch's text, the place, and the user's stack down to the call."""
    called = found.called
    code = called if isinstance(called, CodeType) else getattr(called, "__code__", None)
    place = _named(called, found)
    source = sources(code.co_filename) if isinstance(code, CodeType) else ()
    if isinstance(code, CodeType) and (span := spans.defined(source, code)):
        place |= {"line": span.line, **spans.in_characters(source, span)}
    frames = [frame for frame in found.stack if not is_plumbing(frame.filename)]
    callers = [frame_data(frame.filename, frame.lineno, frame.name) for frame in frames]
    return {"gb_type": found.gb_type, "text": found.text, "compile_id": found.compile_id, "callers": callers, **place}


def context_of(compile_id: str) -> dict[str, int]:
    """The context that torch gives the events of a compile, of its id ("0/1"); none of an id of another form."""
    frame, _, number = compile_id.partition("/")
    return {"frame_id": int(frame), "frame_compile_id": int(number)} if frame.isdigit() and number.isdigit() else {}


def _named(called: Any, found: Untold) -> dict[str, Any]:
    if isinstance(called, CodeType):
        return {"file": called.co_filename, "line": called.co_firstlineno, "function": called.co_qualname}
    return {} if called is None else names.describe(called, found.caller or sys._getframe())
