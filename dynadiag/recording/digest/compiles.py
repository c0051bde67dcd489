"""Compiles: one record for all attempts at a frame, which is complete at the end of the log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dynadiag.recording.code_origin import is_resume_function, is_user_file, original_name, user_frames
from dynadiag.recording.digest.breaks import parse_frames
from dynadiag.recording.digest.context import METRICS_KINDS, DigestContext
from dynadiag.recording.json_values import float_or_none, int_or_none, text_or_none
from dynadiag.recording.records import (
    INTERRUPTED,
    NO_OPERATION,
    Compile,
    Event,
    Frame,
    GuardFailure,
    Recompile,
    Record,
    Seconds,
    SkippedFrame,
)
from dynadiag.recording.torch_text.breaks import parse_message

_LIMIT = "recompile limit exceeded"  # part of torch's reason in all versions
_LIMIT_UNDER_FULLGRAPH = "FailOnRecompileLimitHit"  # the exception where nothing may be left to Python
# Dynamo raises SkipFrame without a reason in the metrics, and never traces the function again.
_CUT = "the recording ends during this compile"
_NO_OPERATION_AFTER_BREAK = "what follows the break has no tensor operation"
_METRICS_OF_PART = {
    "total": ("entire_frame_compile_time_s", "backward_cumulative_compile_time_us"),
    "aot": ("backend_compile_time_s", "backward_cumulative_compile_time_us"),
    "inductor": ("inductor_compile_time_s",),
    "codegen": ("code_gen_time_s",),
}


@dataclass(slots=True)
class _OpenCompile:
    """What is known so far about one compile."""

    compile_id: str
    file: str | None = None
    line: int | None = None
    function: str = "?"
    is_resume: bool = False  # it is the resume function after a break
    is_interrupted: bool = False
    user_stack: tuple[Frame, ...] = ()
    attempts: int = 1
    parts: dict[str, float] = field(default_factory=dict)
    measured: bool = False
    guarded: bool = False
    fatal: bool = False
    error: str | None = None
    reason: str | None = None
    cache: str | None = None
    reasons: tuple[GuardFailure, ...] | None = None  # not None for a recompile


class CompileCollector:
    """Collects compiles by id."""

    def __init__(self, context: DigestContext) -> None:
        self._context = context
        self._open: dict[str, _OpenCompile] = {}
        self.begun = 0  # compiles of frames so far

    def event(self, name: str, event: Event, metadata: dict[str, Any]) -> None:
        """Add what one event says about its compile."""
        if (entry := self._open.get(event.compile_id)) is not None and not entry.measured:
            entry.attempts = max(entry.attempts, (event.attempt or 0) + 1)
        if name == "dynamo_start":
            self._started(event, metadata)
        elif name in ("recompile_reasons", "dynadiag_refused"):
            self._recompiled(event)
        elif name in METRICS_KINDS:
            data = metadata.get(name)
            if isinstance(data, dict) and event.compile_id != "-":
                self._measure(self._compile(event.compile_id), data, forward=name == "compilation_metrics")
        elif (word := name.removeprefix("fx_graph_cache_")) in ("hit", "miss", "bypass"):
            self._compile(event.compile_id).cache = word
        elif name == "dynadiag_break" and isinstance(data := metadata.get("dynadiag_break"), dict):
            self._compile(event.compile_id).fatal |= bool(data.get("fatal"))

    def _compile(self, compile_id: str) -> _OpenCompile:
        if compile_id not in self._open:
            self._open[compile_id] = _OpenCompile(compile_id)
            self.begun += "/" in compile_id
        return self._open[compile_id]

    def was_traced(self, frame: SkippedFrame) -> bool:
        """Whether a compile already covers this frame: Dynamo skipped it while tracing."""
        name = original_name(frame.function)
        return any(
            (each.file, each.line, each.function) == (frame.file, frame.line, name) for each in self._open.values()
        )

    def is_measured(self, compile_id: str) -> bool:
        """Whether the compile of this id has its metrics, and so has ended."""
        return compile_id in self._open and self._open[compile_id].measured

    def _started(self, event: Event, metadata: dict[str, Any]) -> None:
        entry = self._compile(event.compile_id)
        data = metadata.get("dynamo_start")
        stack = self._context.parse_stack(data.get("stack") if isinstance(data, dict) else None)
        frame = self._context.take("frame", event.compile_id)
        if stack and isinstance(frame, dict) and (callers := parse_frames(frame.get("callers"))):
            is_part = is_resume_function(str(frame.get("function")))  # the part before it called it
            same = (callers[-1].file, callers[-1].function) == (stack[-1].file, stack[-1].function)
            stack = (*(callers[:-1] if is_part and same else callers), stack[-1])
        entry.user_stack = user_frames(stack)
        self._set_function(entry, frame, stack)
        self._context.stacks[event.compile_id] = entry.user_stack

    def _set_function(self, entry: _OpenCompile, frame: Any, stack: tuple[Frame, ...]) -> None:
        if isinstance(frame, dict):
            self._context.objects[entry.compile_id] = frame.get("objects")
            entry.file, entry.line = text_or_none(frame.get("file")), int_or_none(frame.get("line"))
            entry.function = original_name(str(frame.get("function", "?")))
            entry.is_resume = is_resume_function(str(frame.get("function")))
        elif stack:
            entry.file, entry.line, entry.function = stack[-1].file, stack[-1].line, stack[-1].function

    def _recompiled(self, event: Event) -> None:
        entry = self._compile(event.compile_id)
        data = self._context.take("recompiled", event.compile_id) or {}
        entry.reasons = data.get("reasons", ())
        if "function" in data:
            self._set_function(entry, data, ())

    def _measure(self, entry: _OpenCompile, data: dict[str, Any], *, forward: bool) -> None:
        for part, names in _METRICS_OF_PART.items():
            for name in names:
                value = float_or_none(data.get(name))
                if value is not None:
                    value = value / 1e6 if name.endswith("_us") else value
                    entry.parts[part] = entry.parts.get(part, 0.0) + value
        if not forward:
            self._backward_failed(entry, data)
            return
        entry.measured = True
        # A frame that Dynamo skipped after tracing has the flag too, but None as guard count.
        entry.guarded = bool(data.get("has_guarded_code")) and data.get("guard_count", 0) is not None
        entry.error, entry.reason = text_or_none(data.get("fail_type")), text_or_none(data.get("fail_reason"))
        # torch's metrics of a compile that Ctrl-C ended have neither code nor a failure.
        if data.get("has_guarded_code") is False and entry.error is None and not entry.reason:
            entry.is_interrupted = not self._context.breaks[entry.compile_id]
        if entry.file is None:
            entry.file, entry.line = text_or_none(data.get("co_filename")), int_or_none(data.get("co_firstlineno"))
            if entry.function == "?":
                entry.function = original_name(str(data.get("co_name") or "?"))

    @staticmethod
    def _backward_failed(entry: _OpenCompile, data: dict[str, Any]) -> None:
        """A backward is compiled at its first call; if that fails, torch raises there."""
        if (error := text_or_none(data.get("fail_type"))) is not None:
            entry.error, entry.reason = error, f"in the backward: {data.get('fail_reason') or ''}"
            entry.fatal = True

    def finish(self) -> Iterator[Record]:
        """Yield every compile, and its recompile or skipped frame if it is one."""
        for entry in self._open.values():
            if "/" in entry.compile_id:
                yield from self._records(entry)

    def _records(self, entry: _OpenCompile) -> Iterator[Record]:
        outcome = self._outcome(entry)
        limit = _LIMIT in (entry.reason or "") or entry.error == _LIMIT_UNDER_FULLGRAPH
        if entry.reasons is not None:
            yield self._recompile(entry, limit=limit)
        if outcome == "skipped" and entry.file and not (entry.reason is None and not is_user_file(entry.file)):
            yield SkippedFrame(entry.file, entry.line, entry.function, _skip_reason(entry))
        yield Compile(
            index=self._context.next_index("compile"),
            compile_id=entry.compile_id,
            file=entry.file,
            line=entry.line,
            function=entry.function,
            user_stack=entry.user_stack,
            outcome=outcome,
            attempts=entry.attempts,
            seconds=_seconds(entry.parts),
            guards=self._context.guards[entry.compile_id],
            error=entry.error,
            reason=INTERRUPTED if entry.is_interrupted else entry.reason if entry.measured else _CUT,
            cache=entry.cache,
        )

    def _recompile(self, entry: _OpenCompile, *, limit: bool) -> Recompile:
        return Recompile(
            index=self._context.next_index("recompile"),
            compile_id=entry.compile_id,
            file=entry.file,
            line=entry.line,
            function=entry.function,
            reasons=entry.reasons or (),
            limit_reached=limit,
        )

    def _outcome(self, entry: _OpenCompile) -> str:
        if not entry.measured or entry.is_interrupted:
            return "error"
        if entry.error is not None:
            soft = entry.error in ("Unsupported", "UserError", "SkipFrame", "RecompileLimitExceeded")
            raised = entry.fatal or entry.compile_id in self._context.raised
            return "skipped" if soft and not raised else "error"
        if self._context.breaks[entry.compile_id]:
            return "break"
        return "ok" if entry.guarded else "skipped"


def _skip_reason(entry: _OpenCompile) -> str:
    """Why Dynamo left a frame to Python, in one sentence. The break behind it has the details."""
    if entry.reason:
        return parse_message(entry.reason).reason
    return _NO_OPERATION_AFTER_BREAK if entry.is_resume else NO_OPERATION


def _seconds(parts: dict[str, float]) -> Seconds:
    total, aot = parts.get("total"), parts.get("aot")
    dynamo = None if total is None else max(0.0, total - (aot or 0.0))
    return Seconds(total, dynamo, aot, parts.get("inductor"), parts.get("codegen"))


def read_skipped_frame(data: dict[str, Any]) -> SkippedFrame:
    """Return the frame of one event. A resume function has torch's name, and the line where it continues."""
    name, reason = str(data.get("function", "?")), str(data.get("reason", ""))
    return SkippedFrame(str(data.get("file", "?")), int_or_none(data.get("line")), name, reason)
