"""Every private name of torch that dynadiag leans on, in one place, with the versions it was seen in.

The recorder listens to torch's structured trace and looks, when certain events pass, at the local variables of the
torch function that emitted them. So what we know of torch is: the name of a logger, of a few functions, and of
their locals. Each was read in torch 2.11.0, 2.13.0 and 2.15.0 unless its comment says otherwise; a test per entry runs
on whatever torch is installed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

TRACE_LOGGER = "torch.__trace"

# The functions that emit an event, and which of their locals say more than the event does.
BREAK_EMITTERS = {
    "log_graph_break": "exc",  # InstructionTranslatorBase, symbolic_convert.py
    "unimplemented_with_warning": "e",  # exc.py
    "__call__": "e",  # ConvertFrame, convert_frame.py: breaks that skip the whole frame
}
ERROR_EMITTER = ("_compile", "e")  # convert_frame.py: artifact dynamo_error
START_EMITTER = ("log_dynamo_start", "code")  # convert_frame.py: dynamo_start
GRAPH_EMITTER = ("compile_and_call_fx_graph", "gm")  # OutputGraph, output_graph.py: dynamo_output_graph
GUARDS_EMITTER = ("__init__", "sorted_guards")  # CheckFunctionManager, guards.py: dynamo_cpp_guards_str
RECOMPILE_EMITTER = (
    "get_and_maybe_log_recompilation_reasons",
    "frame",
)  # guards.py: artifact recompile_reasons

# Functions whose `self` is Dynamo's interpreter of one user frame, with `f_code` and `current_instruction`.
TRANSLATOR_FRAMES = frozenset({"run", "step", "inline_call_"})

_MAX_EMITTER_DISTANCE = 14  # frames between a logging handler and the function that emitted; 9 was the most seen


def emitter_locals(function: str, local: str, start: FrameType | None) -> dict[str, Any] | None:
    """The locals of the nearest caller named ``function`` that has a local named ``local``, or None."""
    frame, distance = start, 0
    while frame is not None and distance < _MAX_EMITTER_DISTANCE:
        if frame.f_code.co_name == function and local in frame.f_locals:
            return dict(frame.f_locals)
        frame, distance = frame.f_back, distance + 1
    return None


def translators(start: FrameType | None, failure: BaseException | None) -> Iterator[Any]:
    """Dynamo's interpreters of the user's frames, outermost first: those that run, then those that ``failure`` left."""
    live: list[Any] = []
    frame = start
    while frame is not None:
        if frame.f_code.co_name in TRANSLATOR_FRAMES:
            live.append(frame.f_locals.get("self"))
        frame = frame.f_back
    seen: set[int] = set()
    for tx in [*reversed(live), *_left_by(failure)]:
        if hasattr(tx, "current_instruction") and id(tx) not in seen:
            seen.add(id(tx))
            yield tx


def _left_by(failure: BaseException | None) -> Iterator[Any]:
    """The interpreters in the traceback of ``failure``, and of what it was raised from."""
    chain: list[BaseException] = []
    while failure is not None and failure not in chain:
        chain.append(failure)
        failure = failure.__cause__ or failure.__context__
    for one in chain:
        trace: TracebackType | None = one.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_name in TRANSLATOR_FRAMES:
                yield trace.tb_frame.f_locals.get("self")
            trace = trace.tb_next


def cached_entries(emitter: dict[str, Any]) -> list[Any]:
    """The cache entries that a recompilation was held against.

    torch 2.11 keeps the first of a linked list as ``first_cache_entry``; 2.13 has a list ``cache_entries``.
    """
    if "cache_entries" in emitter:
        return list(emitter["cache_entries"])
    entries, entry = [], emitter.get("first_cache_entry")
    while entry is not None:
        entries.append(entry)
        entry = entry.next
    return entries


def size_symbols(shape_env: Any) -> dict[str, dict[str, str]]:
    """Range and example value of each backed symbol of a ShapeEnv (``var_to_val`` until 2.11, then renamed)."""
    values = getattr(shape_env, "backed_var_to_val", None)
    if values is None:
        values = shape_env.var_to_val
    ranges = shape_env.var_to_range
    return {str(symbol): {"range": str(ranges.get(symbol)), "hint": str(value)} for symbol, value in values.items()}


class _EnabledLogger(logging.Logger):
    """The trace's logger while we listen: ``logging.config.dictConfig`` in a program disables loggers that it does
    not know, and would end the recording without a word."""

    @property
    def disabled(self) -> bool:
        return False

    @disabled.setter
    def disabled(self, value: bool) -> None:
        self.__dict__["disabled"] = value  # kept for `release`, when the logger is as the program left it


def keep_enabled(logger: logging.Logger) -> None:
    """Have the trace's logger pass events on whatever the program's logging configuration says of it."""
    logger.__class__ = _EnabledLogger


def release(logger: logging.Logger) -> None:
    """Make the trace's logger an ordinary one again, enabled or disabled as the program left it."""
    logger.__class__ = logging.Logger
