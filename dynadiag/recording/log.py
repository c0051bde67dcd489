"""Parse ``TORCH_TRACE`` logs as a stream: where each event is in the file, and what its header says.

An event is a glog line that ends in a JSON object, ``V1120 06:38:46.123456 PID PATH:LINE] {json}``, and the lines with
a leading tab after it, which are its payload. All else is noise: output of the program in the same file, blank lines, a
header that was cut short. Noise becomes events of the kind `NOISE_KIND`, so that the events cover every byte of the
log. No content of a log makes this module raise. At most one header is in memory; payloads are positions in the file.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import orjson

NOISE_KIND = "dynadiag_unparsed"
MAX_HEADER = 4 << 20  # bytes; torch asks that metadata stay under 1 MB
_MAX_NOISE = 1 << 20  # bytes of noise in one event, so that a file of only noise can be read in pieces

_RECORD = re.compile(rb"\n(?=[^\t])")
_GLOG = re.compile(rb"[A-Z]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ ")
_TIME = slice(1, 21)  # of the glog line
# The keys that torch reserves, and the two that it adds: they are never the kind of an event.
_RESERVED = ("rank", "severity", "timestamp", "pathname", "thread", "subgraph_name")
_COMPILE = ("compiled_autograd_id", "frame_id", "frame_compile_id", "attempt")
_CONTEXT = frozenset((*_RESERVED, *_COMPILE, "has_payload", "stack"))


class RawEvent(NamedTuple):
    """One event's position in the log: bytes `start` to ``start + size``, the header line first."""

    start: int
    size: int
    header: bytes | None  # without its newline; None for noise
    lines: int  # number of lines of noise, 0 for an event


class LogParser:
    """Takes bytes, returns events. Call `feed` with consecutive pieces of any size, then `finish`."""

    def __init__(self) -> None:
        self._read = 0  # bytes fed so far
        self._carry = b""  # a header whose end has not been seen
        self._line_start = True  # the next byte begins a line
        self._start = 0  # of the event that is open
        self._header: bytes | None = None
        self._lines = 0
        self._open = False

    def feed(self, piece: bytes) -> list[RawEvent]:
        """Return the events that end within the bytes fed so far."""
        data = self._carry + piece if self._carry else piece
        base = self._read - len(self._carry)
        self._read += len(piece)
        done: list[RawEvent] = []
        for start in self._line_starts(data):
            end = data.find(b"\n", start)
            if end < 0:
                if len(data) - start <= MAX_HEADER:
                    self._carry = data[start:]
                    return done
                self._add_line(base + start, None, done)
            else:
                self._add_line(base + start, data[start:end], done)
        self._carry = b""
        if data:
            self._line_start = data.endswith(b"\n")
        return done

    def finish(self) -> list[RawEvent]:
        """Return the events that the end of the file completes."""
        done: list[RawEvent] = []
        if self._carry:
            self._add_line(self._read - len(self._carry), self._carry, done)
            self._carry = b""
        self._close(self._read, done)
        return done

    def _line_starts(self, data: bytes) -> list[int]:
        """The positions of lines without a leading tab."""
        starts = [match.end() for match in _RECORD.finditer(data)]
        if data and (self._carry or (self._line_start and not data.startswith(b"\t"))):
            starts.insert(0, 0)
        return starts

    def _add_line(self, start: int, line: bytes | None, done: list[RawEvent]) -> None:
        """Begin an event at `start`. A line that is not a header continues the noise before it."""
        if line is not None and _GLOG.match(line) is None:
            line = None
        if line is None and self._open and self._header is None and start - self._start < _MAX_NOISE:
            self._lines += 1
            return
        self._close(start, done)
        self._open, self._start, self._header, self._lines = True, start, line, int(line is None)

    def _close(self, end: int, done: list[RawEvent]) -> None:
        if not self._open and end > self._start:  # a log that begins with payload lines
            self._lines = 1
            self._open = True
        if self._open:
            done.append(RawEvent(self._start, end - self._start, self._header, self._lines))
            self._open = False


def parse_metadata(header: bytes) -> dict[str, Any] | None:
    """Return the JSON object of a header line, or ``None`` if it has no valid one.

    orjson is strict. Python's own parser reads what Python's writer adds to the standard (``NaN``, lone surrogates,
    long integers), with its text made valid UTF-8.
    """
    text = header[header.find(b"] {") + 2 :]
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = _python_json(text)
    return value if type(value) is dict else None


def _python_json(text: bytes) -> object:
    try:
        return _valid_text(json.loads(text))
    except (ValueError, RecursionError):  # not JSON, or nested too deeply
        return None


def _valid_text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_valid_text(item) for item in value]
    if isinstance(value, dict):
        return {_valid_text(key): _valid_text(item) for key, item in value.items()}
    return value


def event_kind(metadata: dict[str, Any]) -> str:
    """Return the kind of an event: its first key that is not context, ``"unknown"`` if there is none."""
    for key in metadata:
        if key not in _CONTEXT:
            return key
    return "unknown"


def event_time(header: bytes) -> str:
    """Return the time of a glog line as written: ``"1120 06:38:46.123456"`` (no year, local time)."""
    return header[_TIME].decode("ascii")


def payload_text(raw: bytes) -> str:
    """Return the text of a payload from its bytes in the log. Leading tabs are removed, invalid UTF-8 is replaced."""
    return raw.removesuffix(b"\n").removeprefix(b"\t").replace(b"\n\t", b"\n").decode("utf-8", "replace")
