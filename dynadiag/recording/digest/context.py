"""State that the event readers share: interned strings, numbering, and data of our events for the next torch event."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from dynadiag.recording.code_origin import original_name
from dynadiag.recording.digest.guard_locations import GuardLocations
from dynadiag.recording.json_values import int_or_none, list_or_empty
from dynadiag.recording.records import Event, Frame, Record, SourceFile, Trial

_LAST_STEP = re.compile(r"(\.\w+(\(\))?|\[[^\[\]]*\])$")  # the last attribute, call or item of a guard's source
_KEYS = re.compile(r"list\(dict\.keys\((.*)\)\)", re.DOTALL)  # covered by the guard on the dict itself
_MAX_FILES = 20_000  # files that short names are resolved against; a log names a few hundred
METRICS_KINDS = ("compilation_metrics", "bwd_compilation_metrics")  # of torch's events with the metrics of a compile


class DigestContext:
    """The state of reading one log."""

    def __init__(self) -> None:
        self._strings: dict[int, str] = {}
        self._numbers: Counter[str] = Counter()
        self._times_used: dict[str, int] = {}
        self._held: dict[tuple[str, str], Any] = {}
        self._files: dict[str, None] = {}
        self._full_names: dict[str, str | None] = {}
        self.guards: Counter[str] = Counter()  # compile id -> guards of its last attempt
        self.breaks: Counter[str] = Counter()  # compile id -> breaks logged while compiling it
        self.guard_locations = GuardLocations()
        self.objects: dict[str, Any] = {}  # compile id -> the number of the object that each local was
        self.raised: set[str] = set()  # compiles that ended in a break which torch raised
        self.fatal: set[str | None] = set()  # ids of the breaks that torch raised
        self.stacks: dict[str, tuple[Frame, ...]] = {}  # compile id -> the user's frames down to the compiled one
        self.exports = 0  # that have begun
        self.export: str | None = None  # id of the export that goes on
        self.sites: set[tuple[str, str | None, int | None]] = set()  # (compile id, type, line) of each break

    def unique_id(self, compile_id: str) -> str:
        """Return an id that is unique in the run: ``torch._dynamo.reset()`` makes torch reuse compile ids.

        The first compile of an id keeps it. The second is ``"0/0#2"``.
        """
        times = self._times_used.get(compile_id)
        return compile_id if times is None else f"{compile_id}#{times}"

    def reuse_id(self, compile_id: str) -> None:
        """Note that this id now means another compile."""
        self._times_used[compile_id] = self._times_used.get(compile_id, 1) + 1

    def next_index(self, kind: str) -> int:
        """Return the next index for a kind of record."""
        self._numbers[kind] += 1
        return self._numbers[kind] - 1

    def intern(self, pair: Any) -> None:
        """Add an interned string: torch names each file once, with a number."""
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], int):
            self._strings[pair[1]] = pair[0]
            self.add_file(pair[0])

    def add_file(self, file: str) -> None:
        """Add the full name of a file."""
        if len(self._files) < _MAX_FILES:
            self._files[file] = None

    def hold(self, kind: str, compile_id: str, data: Any) -> None:
        """Hold the data of one of our events for the torch event that follows."""
        self._held[kind, compile_id] = data
        file = data.get("file") if isinstance(data, dict) else None
        if isinstance(file, str):
            self.add_file(file)

    def take(self, kind: str, compile_id: str) -> Any:
        """Return held data and forget it."""
        return self._held.pop((kind, compile_id), None)

    def guard_location(self, compile_id: str, source: str | None) -> tuple[str | None, int | None]:
        """Return the line of the guard on ``source``, or on what it is part of (``L['x']`` of ``L['x'].size()[0]``)."""
        while source:
            if found := self.guard_locations.find(compile_id, source):
                return found
            shorter = _LAST_STEP.sub("", source)
            keys = _KEYS.fullmatch(shorter)
            source = keys[1] if keys else shorter if shorter != source else None
        return None, None

    def parse_stack(self, frames: Any) -> tuple[Frame, ...]:
        """Parse a stack as torch writes it in metadata, with interned file names."""
        found = []
        for frame in list_or_empty(frames):
            if isinstance(frame, dict):
                file = frame.get("filename")
                file = self._strings.get(file, "?") if isinstance(file, int) else str(file)
                found.append(Frame(file, int_or_none(frame.get("line")), original_name(str(frame.get("name", "?")))))
        return tuple(found)

    def full_name(self, short: str) -> str | None:
        """Return the one known file that ends in ``short``: torch shortens file names in guards."""
        if short not in self._full_names:
            matches = [file for file in self._files if file.endswith(short)]
            self._full_names[short] = matches[0] if len(matches) == 1 else None
        return self._full_names[short]

    def source(self, data: dict[str, Any], event: int) -> Iterator[SourceFile]:
        """Yield the record of a recorded source file."""
        if isinstance(file := data.get("file"), str):
            yield SourceFile(file, event)

    def trial(self, data: dict[str, Any]) -> Iterator[Trial]:
        """Yield the record of a trial."""
        seconds = data.get("seconds")
        yield Trial(
            self.next_index("trial"),
            int_or_none(data.get("pid")),
            str(data.get("candidate", "")),
            str(data.get("outcome", "")),
            float(seconds) if isinstance(seconds, (int, float)) else 0.0,
        )


Payload = Callable[[], str]
# Reads one artifact, or one event that is none: the records that it completes.
Reader = Callable[[DigestContext, Event, dict[str, Any], Payload], Iterator[Record]]
