"""State that the event readers share: interned strings, numbering, and data of our events for the next torch event.

The user's line of each guard is kept for the recompiles that name it later. A log of many large compiles has hundreds
of thousands of guards. So those of a compile are kept compressed, some 20 bytes each and not 200, and memory hardly
grows with the log.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dynadiag.recording.code_origin import named_frames
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
        self.guarded_names: dict[tuple[str, str], str] = {}  # compile id, source -> the code that is guarded on
        self.symbol_values: dict[tuple[str, str], str] = {}  # compile id, source -> the value that it was compiled with
        self.variables: dict[str, dict[str, str]] = {}  # number of a frame -> sources of closed-over variables, named
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

    def variables_of(self, compile_id: str) -> dict[str, str]:
        """Return the names of closed-over variables by their sources, as the guards of the frame have them."""
        return self.variables.setdefault(compile_id.partition("/")[0], {})

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
                found.append(Frame(file, int_or_none(frame.get("line")), str(frame.get("name", "?"))))
        return named_frames(found)

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


_MAX_GUARDS = 500_000  # a large model's compile has thousands
_Lines = dict[str, Sequence[Any]]  # from the guard's source to file and line


class GuardLocations:
    """Lines by compile and source of the guard. The guards of one compile come one after the other."""

    def __init__(self) -> None:
        self._packed: dict[str, bytes] = {}
        self._open: tuple[str, _Lines] = "", {}
        self._known = 0  # how many lines of the open compile are packed already
        self._count = 0

    def add(self, compile_id: str, source: str, file: str, line: int | None) -> None:
        """Add the line of a guard. The first one of a source counts."""
        if self._count < _MAX_GUARDS:
            self._count += 1
            self._lines_of(compile_id).setdefault(source, (file, line))

    def find(self, compile_id: str, source: str) -> tuple[str, int | None] | None:
        """Return the line of the guard on a source, None if it has none."""
        if compile_id != self._open[0] and compile_id not in self._packed:
            return None
        found = self._lines_of(compile_id).get(source)
        return None if found is None else (found[0], found[1])

    def _lines_of(self, compile_id: str) -> _Lines:
        """The lines of one compile, which stay unpacked until another is asked for."""
        last, lines = self._open
        if compile_id != last:
            if len(lines) != self._known:
                self._packed[last] = zlib.compress(json.dumps(lines).encode(), level=1)
            packed = self._packed.get(compile_id)
            self._open = compile_id, {} if packed is None else json.loads(zlib.decompress(packed))
            self._known = len(self._open[1])
        return self._open[1]
