"""Breaks and recompiles that torch raises before it traces a frame. No event and no log message reports them.

With ``fullgraph=True`` these are a generator function (``ConvertFrameAssert.__call__``) and the recompile limit
(``_compile``; both in convert_frame.py). Only the exception is left: an ``Unsupported`` without ``real_stack``, by
itself or as the cause of another, with the torch frames in its traceback that know what was being compiled. Read in
torch 2.11.0, 2.13.0 and 2.15.0.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

_COMPILE = ("_compile", "torch/_dynamo/convert_frame.py")  # it has the locals `code` and `compile_id`
# It has `reasons`, the messages of torch.
_GUARD_REASONS = ("get_and_maybe_log_recompilation_reasons", "torch/_dynamo/guards.py")
_COMPILED_CALL = ("compile_wrapper", "torch/_dynamo/eval_frame.py")  # it has `fn`, the user's function


@dataclass(frozen=True, slots=True)
class RaisedBreak:
    """What the exception says. ``compiled`` is the function or the code that torch was to compile, None if unknown."""

    gb_type: str
    text: str
    compile_id: str | None
    compiled: Any
    caller: FrameType | None
    stack: tuple[traceback.FrameSummary, ...]  # down to the exception, outermost first


@dataclass(frozen=True, slots=True)
class RefusedRecompile:
    """A recompile that ``torch._dynamo.config.error_on_recompile`` turned into an exception before torch logged it."""

    compile_id: str
    code: CodeType
    reasons: list[str]


def find_refused_recompile(failure: BaseException | None) -> RefusedRecompile | None:
    """Return the refused recompile behind an exception, if there is one."""
    if not any(type(one).__name__ == "RecompileError" for one in exception_chain(failure)):
        return None
    frames = list(traceback_frames(failure))
    compiling = next((dict(frame.f_locals) for frame in frames if _is_frame_of(frame, *_COMPILE)), {})
    guards = next((frame.f_locals for frame in frames if _is_frame_of(frame, *_GUARD_REASONS)), {})
    if not {"code", "compile_id"} <= compiling.keys() or "reasons" not in guards:
        return None
    return RefusedRecompile(
        str(compiling["compile_id"]), compiling["code"], [str(reason) for reason in guards["reasons"]]
    )


def find_raised_break(failure: BaseException | None) -> RaisedBreak | None:
    """Return the break behind an exception if torch reported it nowhere else."""
    for one in exception_chain(failure):
        gb_type = getattr(one, "gb_type", None)
        if type(one).__module__ == "torch._dynamo.exc" and isinstance(gb_type, str) and gb_type:
            return None if getattr(one, "real_stack", None) else _describe_break(gb_type, str(one), failure)
    return None


def _describe_break(gb_type: str, text: str, failure: BaseException | None) -> RaisedBreak:
    compile_id, called, caller = None, None, None
    for frame in traceback_frames(failure):
        if _is_frame_of(frame, *_COMPILE) and "code" in frame.f_locals:
            compile_id, called, caller = str(frame.f_locals.get("compile_id")), frame.f_locals["code"], frame.f_back
        elif _is_frame_of(frame, *_COMPILED_CALL) and called is None:
            called, caller = frame.f_locals.get("fn"), frame.f_back
    stack = traceback.extract_tb(failure.__traceback__) if failure else ()
    return RaisedBreak(gb_type, text, compile_id, called, caller, tuple(stack))


def _is_frame_of(frame: FrameType, function: str, file: str) -> bool:
    return frame.f_code.co_name == function and frame.f_code.co_filename.endswith(file)


def exception_chain(failure: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception, then those that it was raised from."""
    seen: list[BaseException] = []
    while failure is not None and failure not in seen:
        seen.append(failure)
        yield failure
        failure = failure.__cause__ or failure.__context__


def traceback_frames(failure: BaseException | None) -> Iterator[FrameType]:
    """Yield the frames in the traceback of an exception, then those of the exceptions that it was raised from."""
    for one in exception_chain(failure):
        yield from (frame for frame, _ in traceback.walk_tb(one.__traceback__))
