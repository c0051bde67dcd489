"""The run: from what the recorder wrote at its beginning and end, or from what a log of torch alone says."""

from __future__ import annotations

from typing import Any

from dynadiag.recording.digest.context import METRICS_KINDS, DigestContext, Payload
from dynadiag.recording.json_values import float_or_none, int_or_none, json_object, list_or_empty, text_or_none
from dynadiag.recording.records import CUT_SHORT, Run, signal_note

_FOREIGN = "imported from a TORCH_TRACE log: columns, the values in failing guards and graphs as data are not in it"


_READ = {  # a probe -> what it reads
    "dynamo_start": "the source of compiled functions",
    "dynamo_graph_break_reason": "columns of graph breaks",
    "dynamo_error": "columns of failed compiles",
    "dynamo_output_graph": "graphs as data",
    "dynamo_cpp_guards_str": "lines of guards",
    "recompile_reasons": "new values of failed guards",
}


class RunCollector:
    """Collects what is known about the process."""

    def __init__(self, context: DigestContext) -> None:
        self._context = context
        self._torch: str | None = None
        self._rank: int | None = None
        self._missed: dict[str, str] = {}
        self._full = False

    def event(self, name: str, metadata: dict[str, Any], payload: Payload) -> None:
        """Add what one event says about the process."""
        if self._rank is None:
            self._rank = int_or_none(metadata.get("rank"))
        if name == "torch_version":
            self._torch = text_or_none(json_object(payload()).get("pytorch_version"))
        elif name in METRICS_KINDS and self._torch is None and isinstance(data := metadata.get(name), dict):
            self._torch = text_or_none(data.get("pytorch_version"))  # logs of torch 2.11 have no other version
        elif name == "dynadiag_missed" and isinstance(data := metadata.get(name), dict):
            self._missed.setdefault(str(data.get("probe")), str(data.get("error")))
        elif name == "dynadiag_limit":
            self._full = True

    def finish(self) -> Run:
        """Return the run.

        ``exit_code`` is from the last ``dynadiag_exit``, written by the process that saw the program end.
        """
        start: dict[str, Any] = self._context.take("run", "-") or {}
        end: dict[str, Any] = self._context.take("end", "-") or {}
        exit_event: dict[str, Any] = self._context.take("exit", "-") or {}
        complete = bool(end) or "code" in exit_event
        return Run(
            target=str(start.get("target") or "?"),
            argv=tuple(map(str, list_or_empty(start.get("argv")))),
            cwd=text_or_none(start.get("cwd")),
            torch=text_or_none(start.get("torch")) or self._torch,
            python=text_or_none(start.get("python")),
            triton=text_or_none(start.get("triton")),
            device=text_or_none(end.get("device")),
            rank=self._rank if self._rank is not None else int_or_none(start.get("rank")),
            pid=int_or_none(start.get("pid")),
            started=float_or_none(start.get("started")),
            seconds=float_or_none(end.get("seconds")) or float_or_none(exit_event.get("seconds")),
            exit_code=int_or_none(exit_event.get("code")),
            complete=complete,
            notes=tuple(self._notes(foreign=not start, complete=complete, exit_event=exit_event)),
        )

    def _notes(self, *, foreign: bool, complete: bool, exit_event: dict[str, Any]) -> list[str]:
        notes = [_FOREIGN] if foreign else []
        code = int_or_none(exit_event.get("code"))
        if not foreign and not complete:
            notes.append(CUT_SHORT)
        elif code is not None and code < 0:
            notes.append(signal_note(code))
        if self._full:
            notes.append("the size limit of the recording was reached: later events are not in it")
        stopped = self._context.take("stopped", "-")
        if stopped is not None:
            calls, seconds = int_or_none(stopped.get("calls")), float_or_none(stopped.get("seconds"))
            notes.append(
                f"ended by --stop-after {calls}: the program was ended at its next call of a compiled function"
                if seconds is None
                else f"ended by --seconds {seconds:g}: this is what was recorded until then"
            )
        unread = [_READ[probe] for probe, error in self._missed.items() if probe in _READ and _is_renamed(error)]
        if unread:
            notes.append(
                f"this torch does not show the recorder all that it reads: {'; '.join(unread)} are not recorded"
            )
        for probe, error in self._missed.items():
            if probe in _READ and _is_renamed(error):
                continue
            if probe == "journal":
                notes.append(f"{error}: it was opened again, and what was compiled meanwhile may be missing")
            else:
                notes.append(f"the recorder could not record all of {probe}: {error}")
        return notes + [str(note) for note in list_or_empty(exit_event.get("notes"))]


def _is_renamed(error: str) -> bool:
    """Whether a probe failed because torch has not what it reads."""
    return error.startswith("LookupError: ")
