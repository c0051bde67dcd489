"""The data of a break that torch raised before it traced anything. It is at the head of the compiled function."""

from __future__ import annotations

import sys
from types import CodeType
from typing import Any

from dynadiag.capture import callable_names, spans
from dynadiag.capture.breaks import Sources, frame_data, is_stdlib_or_torch
from dynadiag.torch_private.exception_frames import RaisedBreak

__all__ = ["describe_raised_break", "parse_compile_id"]


def describe_raised_break(found: RaisedBreak, sources: Sources) -> dict[str, Any]:
    """Return ``gb_type``, torch's text, the location, and the user's stack down to the call."""
    called = found.called
    code = called if isinstance(called, CodeType) else getattr(called, "__code__", None)
    place = _called_location(called, found)
    source = sources(code.co_filename) if isinstance(code, CodeType) else ()
    if isinstance(code, CodeType) and (span := spans.definition_head(source, code)):
        place |= {"line": span.line, **spans.to_character_columns(source, span)}
    frames = [frame for frame in found.stack if not is_stdlib_or_torch(frame.filename)]
    callers = [frame_data(frame.filename, frame.lineno, frame.name) for frame in frames]
    return {"gb_type": found.gb_type, "text": found.text, "compile_id": found.compile_id, "callers": callers, **place}


def parse_compile_id(compile_id: str) -> dict[str, int]:
    """Return the event context of a compile id ("0/1"). Empty for an id of another form."""
    frame, _, number = compile_id.partition("/")
    return {"frame_id": int(frame), "frame_compile_id": int(number)} if frame.isdigit() and number.isdigit() else {}


def _called_location(called: Any, found: RaisedBreak) -> dict[str, Any]:
    if isinstance(called, CodeType):
        return {"file": called.co_filename, "line": called.co_firstlineno, "function": called.co_qualname}
    return {} if called is None else callable_names.describe_callable(called, found.caller or sys._getframe())
