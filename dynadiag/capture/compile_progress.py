"""What a recorded program compiles now, for the command that waits for it: read from the journal that grows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dynadiag.recording.code_origin import original_name

_EVERY = 10.0  # seconds between lines
_BEGINS, _ENDS = b'{"dynadiag_frame"', b'{"compilation_metrics"'


class CompileProgress:
    """Writes a line every ten seconds while something is compiled.

    ``write`` gets each line. It is called with the seconds since the program began.
    """

    def __init__(self, journal: Path, write: Callable[[str], None]) -> None:
        self._journal, self._write = journal, write
        self._read, self._next, self._done = 0, _EVERY, 0
        self._open: dict[tuple[Any, Any], str] = {}  # compile -> its function

    def __call__(self, seconds: float) -> None:
        if seconds < self._next:
            return
        self._next = seconds + _EVERY
        self._read_on()
        if self._open:
            self._write(f"{seconds:.0f} s: {self._done} compiled; compiling {next(reversed(self._open.values()))}")

    def _read_on(self) -> None:
        """Read the whole lines that came since the last time."""
        try:
            with self._journal.open("rb") as journal:
                journal.seek(self._read)
                text, end, _ = journal.read().rpartition(b"\n")
        except OSError:  # the program has removed it
            return
        self._read += len(text) + len(end)
        for line in text.split(b"\n"):
            at = max(line.find(_BEGINS), line.find(_ENDS))
            if at >= 0:
                self._note(line[at:])

    def _note(self, event: bytes) -> None:
        try:
            data = json.loads(event)
        except ValueError:
            return
        key = (data.get("frame_id"), data.get("frame_compile_id"))
        if event.startswith(_ENDS):
            self._done += self._open.pop(key, None) is not None
        elif isinstance(frame := data.get("dynadiag_frame"), dict):
            self._open[key] = original_name(str(frame.get("function", "?")))
