"""Describes a graph break when torch logs it: its type, and the exact span of source that breaks the graph.

torch's text names a line. The span comes from the instruction that Dynamo's translator of that frame is at: its
``positions`` have columns for every instruction (Python 3.11 and up).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import CodeType, FrameType
from typing import Any, TypeAlias

from dynadiag.capture import spans
from dynadiag.capture.code_locations import describe_callable, describe_code, frame_data, is_stdlib_or_torch
from dynadiag.torch_private import capture as torch_private
from dynadiag.torch_private.exception_frames import RaisedBreak

_OBSERVED = "Observed exception"  # torch's type of break for an exception that no traced code handles

Sources: TypeAlias = Callable[[str], spans.SourceText]  # the lines of a file when the recorder first saw it


def describe_break(
    failure: BaseException, emitter: FrameType | None, sources: Sources, *, fatal: bool
) -> dict[str, Any]:
    """Return the data of a break: ``gb_type``, its file, line, columns and function, and whether torch raised it.

    ``emitter`` is the frame of the torch function that logs it.
    """
    gb_type = _gb_type(failure)
    origin = _raised_at(failure, emitter) if gb_type == _OBSERVED else None
    place = _blamed_location(failure, emitter, sources, passed=gb_type == _OBSERVED)
    data = {"gb_type": gb_type, "fatal": fatal, "raised": type(failure).__name__, **(place or {})}
    within, calls = torch_private.traced_operator(failure), _calls(failure, emitter)
    known = {"raised_at": origin, "within": within, "calls": calls if len(calls) > 1 else None}
    return {**data, **{key: value for key, value in known.items() if value}}


def _calls(failure: BaseException, emitter: FrameType | None) -> list[dict[str, Any]]:
    """The traced frames of the user's, outermost first. torch's text leaves some out."""
    traced = torch_private.instruction_translators(emitter, failure)
    own = [tx for tx in traced if not is_stdlib_or_torch(tx.f_code.co_filename)]
    return [frame_data(tx.f_code.co_filename, _line(tx), tx.f_code.co_name) for tx in own]


def _raised_at(failure: BaseException, emitter: FrameType | None) -> dict[str, Any] | None:
    """The innermost frame of the user's, or of a library, in the traceback of the exception in the traced code."""
    for tx in torch_private.instruction_translators(emitter, failure):
        try:
            frames = torch_private.exception_traceback(tx)
        except Exception:  # noqa: BLE001 - it reads Dynamo's objects, which may fail; the break is recorded without its origin then
            return None
        own = [frame for frame in frames if not is_stdlib_or_torch(frame[0])]
        if own or frames:
            return frame_data(*(own or frames)[-1])
    return None


def _gb_type(failure: BaseException) -> str | None:
    name = getattr(failure, "gb_type", None)
    return name if isinstance(name, str) and name else None


def _blamed_location(
    failure: BaseException, emitter: FrameType | None, sources: Sources, *, passed: bool
) -> dict[str, Any] | None:
    """The location in the innermost frame of the user's, or of a library; if there is none, in the innermost frame.

    ``passed``: an exception left the frame, so that its current instruction may be in a later ``finally``.
    """
    interpreters = list(torch_private.instruction_translators(emitter, failure))
    theirs = [tx for tx in interpreters if not is_stdlib_or_torch(tx.f_code.co_filename)]
    innermost = (theirs or interpreters)[-1:]
    return _location_of(innermost[0], sources, torch_private.named_lines(failure), passed) if innermost else None


def _location_of(
    tx: Any, sources: Sources, named: Mapping[tuple[str, str], int | None], passed: bool
) -> dict[str, Any]:
    """The location in a frame. ``named`` has the lines that torch names, by file and function."""
    code: CodeType = tx.f_code
    source = sources(code.co_filename)
    line = named.get((code.co_filename, code.co_name)) or _line(tx)
    before = partial(torch_private.instructions_backwards, tx)
    span = spans.blamed_positions(source, before())
    if span is None or (passed and span.line != line):
        span = spans.last_on_line(source, before(), line)
    place: dict[str, Any] = {
        "file": code.co_filename,
        "line": span.line if span else line,
        "function": code.co_qualname,
    }
    return place if span is None else {**place, **spans.to_character_columns(source, span)}


def _line(tx: Any) -> int | None:
    positions = getattr(tx.current_instruction, "positions", None)
    return getattr(positions, "lineno", None) or getattr(tx, "lineno", None)


def describe_raised_break(found: RaisedBreak, sources: Sources) -> dict[str, Any]:
    """Return ``gb_type``, torch's text, the location, and the user's stack down to the call."""
    called = found.compiled
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
        return describe_code(called)
    return {} if called is None else describe_callable(called, found.caller or sys._getframe())
