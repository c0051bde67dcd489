"""One line as each compile begins, breaks, recompiles, ends or gives up, while the program runs."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Mapping
from types import CodeType, FrameType
from typing import Any

from dynadiag.capture import code_locations
from dynadiag.capture.probes import PROBES
from dynadiag.capture.recorder import Recorder
from dynadiag.errors import DynadiagError, say
from dynadiag.recording.code_origin import original_name
from dynadiag.recording.journal import Journal
from dynadiag.recording.torch_text.sources import source_text
from dynadiag.torch_private import loggers

_WATCHED = ("dynamo_start", "dynamo_graph_break_reason", "dynamo_error", "recompile_reasons")  # their probes are run
_MAX_CHANGES = 3  # guards of one recompile
_MAX_TEXT = 160  # characters of a reason
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\u00a0-\U0010ffff]+")


def write_to_stderr(line: str) -> None:
    """Write a line to the program's own stderr, if it has one."""
    if sys.stderr is not None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


class Watcher(Recorder):
    """Listens to torch as a recorder does, and writes lines instead of a journal. It replaces nothing of torch.

    ``write`` gets each line. If it raises, the watcher says so once and stops; the program goes on.
    """

    def __init__(self, write: Callable[[str], None] = write_to_stderr, *, lead: str = "") -> None:
        super().__init__(_no_journal)
        self._write, self._lead = write, lead
        self._functions: dict[str, str] = {}  # by compile id, until the compile has ended
        self._reported: set[str] = set()  # compiles whose failure has a line
        self._last = ""  # the last line

    def start(self) -> None:
        """Listen to torch."""
        self._released = False
        loggers.listen(self)
        loggers.listen_for_skips(self._on_skipped_frame)

    def stop(self) -> None:
        """Listen no further."""
        self._release()

    def give_up(self, error: Exception) -> None:
        """Stop, and say so once. Never raises."""
        if not self._released:
            self._release()
            say("what torch compiles is not shown any further", error)

    def record_source(self, file: str | None, metadata: Mapping[str, Any], *, library: bool = False) -> None:
        """Do nothing: lines need no source."""

    def _release(self) -> None:
        self._released = True
        loggers.release(self)
        loggers.stop_listening_for_skips(self._on_skipped_frame)

    def _probe(self, metadata: Mapping[str, Any], _payload: str, emitter: FrameType) -> None:
        artifact = metadata.get("artifact")
        name = artifact.get("name") if artifact is not None else next(iter(metadata))
        if name in _WATCHED:
            PROBES[name](self, metadata, emitter)

    def _on_skipped_frame(self, code: CodeType, reason: str) -> None:
        try:
            if skipped := code_locations.describe_skipped_frame(code, reason):
                skipped = self.named(skipped)
                self._line("uncompiled", "", f"{_function(skipped)}: {_short(skipped['reason'])}")
        except Exception as error:  # noqa: BLE001 - it would be raised in the user's program
            self.give_up(error)

    def _append(self, metadata: Mapping[str, Any], _payload: str | None, _record: object = None) -> None:
        kind = next(iter(metadata), "")
        show = _SHOWN.get(kind)
        data = metadata.get(kind)
        if show is not None and isinstance(data, Mapping):
            show(self, _compile_id(metadata), self.named(data), metadata)

    def _begins(self, compile_id: str, data: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
        if metadata.get("attempt") or compile_id in self._functions:
            return  # Dynamo starts again after it met a break, or this is a recompile, which has its line
        self._functions[compile_id] = _function(data)
        self._line("compiling", compile_id, _function(data))

    def _recompiles(self, compile_id: str, data: Mapping[str, Any], _metadata: Mapping[str, Any]) -> None:
        self._functions[compile_id] = _function(data)
        failures = [item for item in data.get("failures") or () if isinstance(item, Mapping)]
        newest = failures[0].get("against") if failures else None  # what changed since: older code failed by it before
        changes = list(dict.fromkeys(_change(item) for item in failures if item.get("against") == newest))
        more = f" and {len(changes) - _MAX_CHANGES} more" if len(changes) > _MAX_CHANGES else ""
        why = f": {', '.join(changes[:_MAX_CHANGES])}{more}" if changes else ""
        self._line("recompiling", compile_id, f"{_function(data)}{why}")

    def _breaks(self, compile_id: str, data: Mapping[str, Any], _metadata: Mapping[str, Any]) -> None:
        if data.get("fatal"):
            self._reported.add(compile_id)
        word = "failed" if data.get("fatal") else "graph break"
        self._line(word, compile_id, f"{_function(data)}: {_short(data.get('gb_type') or data.get('raised') or '')}")

    def _ends(self, compile_id: str, data: Mapping[str, Any], _metadata: Mapping[str, Any]) -> None:
        function = self._functions.pop(compile_id, str(data.get("co_name")))
        if data.get("fail_type") and compile_id not in self._reported:
            reason = str(data.get("fail_reason") or data["fail_type"]).strip().partition("\n")[0]
            self._line("gave up", compile_id, f"{function}: {_short(reason)}")
        elif not data.get("fail_type"):
            seconds = data.get("entire_frame_compile_time_s")
            took = f" in {seconds:.1f} s" if isinstance(seconds, float) else ""
            self._line("compiled", compile_id, f"{function}{took}")

    def _line(self, word: str, compile_id: str, text: str) -> None:
        line = f"{self._lead}{word:<11} {compile_id:<5} {text}".rstrip()
        if line != self._last:  # Dynamo starts again after some breaks, and meets the same one
            self._last = line
            self._write(_UNPRINTABLE.sub(" ", f"{time.strftime('%H:%M:%S')} {line}"))


_SHOWN: dict[str, Callable[[Watcher, str, Mapping[str, Any], Mapping[str, Any]], None]] = {
    "dynadiag_frame": Watcher._begins,
    "dynadiag_recompile": Watcher._recompiles,
    "dynadiag_break": Watcher._breaks,
    "compilation_metrics": Watcher._ends,
}


def _no_journal() -> Journal:
    raise DynadiagError("a watcher keeps no journal")


def _compile_id(metadata: Mapping[str, Any]) -> str:
    frame, number = metadata.get("frame_id"), metadata.get("frame_compile_id")
    return "" if frame is None else f"{frame}/{number}"


def _function(data: Mapping[str, Any]) -> str:
    """The function, and where it is."""
    name, file = original_name(str(data.get("function") or "?")), str(data.get("file") or "").strip("<>")
    return f"{name} at {file.rpartition('/')[2]}:{data.get('line')}" if file else name


def _change(failure: Mapping[str, Any]) -> str:
    """A guard that failed: what it read, and both values where they are known."""
    what = source_text(str(failure.get("source") or failure.get("guard") or "a guard"))
    was, now = failure.get("was"), failure.get("now")
    return _short(what if was is None or now is None else f"{what} was {was}, now {now}")


def _short(text: object) -> str:
    one_line = " ".join(str(text).split())
    return one_line if len(one_line) <= _MAX_TEXT else f"{one_line[: _MAX_TEXT - 1]}…"
