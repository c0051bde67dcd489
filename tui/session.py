"""The recordings that are open, with caches of what was read.

Worker threads may call every method. All raise `UnreadableInput` if the recording is damaged.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from dynadiag.errors import UnreadableInput
from dynadiag.recording.opening import has_recordings, is_running, list_recordings, open_recording
from dynadiag.recording.packing import is_packed
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import CUT_SHORT, Compile, Event, Frame, Graph, Guard, Kernel, Run

if TYPE_CHECKING:
    from dynadiag.explanation.explanation import Explanation
    from dynadiag.kernels.compiled_lines import CompiledLines
    from tui.node_values import NodeValues

_JOURNAL_SUFFIX = ".journal"  # a running search writes RECORDING.journal, which becomes RECORDING
_REREAD_FACTOR = 10  # if reading took one second, the next reading is ten seconds later
_MAX_CACHED_GUARDS = 4  # compiles whose guards are cached
T = TypeVar("T")


class FileWatch:
    """Checks the file of a recording by its size and modification time. Only a live one is read again."""

    def __init__(self, path: Path, *, live: bool = False) -> None:
        self.live = live
        self._path = path
        self._last_state = self._state()
        self._next_check = 0.0
        self._gone = False

    def check(self) -> str | None:
        """Return ``"grown"``, ``"gone"`` (once), or ``None``."""
        state = self._state()
        if state is None:
            gone, self._gone = self._gone, True
            return None if gone else "gone"
        self._gone = False
        if not self.live or state == self._last_state or time.monotonic() < self._next_check:
            return None
        self._last_state = state
        return "grown"

    def read_in(self, seconds: float) -> None:
        """Take in how long reading took: the longer, the later the next one."""
        self._next_check = time.monotonic() + _REREAD_FACTOR * seconds

    def _state(self) -> tuple[int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_size, status.st_mtime_ns


class Session:
    """An open recording, whose file is watched."""

    def __init__(self, path: Path, recording: Recording, watch: FileWatch) -> None:
        self.path, self.recording, self.watch = path, recording, watch
        self._lock = threading.Lock()
        self.kernel_count = self.trial_count = 0  # known once the explanation is read
        self._explanation: Explanation | None = None
        self._kernels: tuple[Kernel, ...] | None = None
        self._compiled_lines: CompiledLines | None = None
        self._values: NodeValues | None = None
        self.guards = lru_cache(_MAX_CACHED_GUARDS)(lambda id_: self.recording.guards(id_))  # of a compile

    @classmethod
    def open(cls, path: Path) -> Session:
        """Open a recording, or the journal of a program or search that still runs. Raises `UnreadableInput`."""
        beside = Path(f"{path}{_JOURNAL_SUFFIX}")
        if beside.is_file() and not path.exists():
            path = beside
        watch, recording = FileWatch(path), open_recording(path)
        watch.live = not is_packed(path.parent) and is_running(path)
        return cls(path, recording, watch)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.recording.close()

    @property
    def live(self) -> bool:
        """Whether its program, or its search, still writes it."""
        return self.watch.live

    @property
    def final_path(self) -> Path:
        """Where the recording is once it is whole."""
        return Path(str(self.path).removesuffix(_JOURNAL_SUFFIX))

    @property
    def run(self) -> Run:
        return self.recording.run

    def explanation(self) -> Explanation:
        """Return the explanation, computed once. It has no guards, no kernels and only Dynamo's graphs."""
        with self._lock:
            if self._explanation is None:
                # imported in a worker: the first screen does not need it
                from dynadiag.explanation.explanation import explain

                made = explain(_SummaryRecording(self.recording))
                totals = self.recording.totals()
                self.kernel_count, self.trial_count = totals.get("kernel", 0), totals.get("trial", 0)
                self._explanation = _mark_running(made) if self.live else made
            return self._explanation

    @property
    def known_explanation(self) -> Explanation | None:
        """The explanation if it has been computed, otherwise ``None``."""
        return self._explanation

    def compile(self, compile_id: str) -> Compile | None:
        """Return the compile with this id, or ``None``. If torch was reset in between, return the last one."""
        return next((item for item in reversed(self.explanation().compiles) if item.compile_id == compile_id), None)

    def callers(self, compile_id: str) -> Sequence[Frame]:
        """Return the frames that led to the function of a compile."""
        item = self.compile(compile_id)
        return item.callers if item is not None else ()

    def all_kernels(self) -> tuple[Kernel, ...]:
        """Return the kernels of all compiles, read once. The first screen does not wait for them."""
        with self._lock:
            if self._kernels is None:
                self._kernels = self.recording.kernels()
            return self._kernels

    def compiled_lines(self) -> CompiledLines:
        """Return the compiles of each source line, read once."""
        from dynadiag.kernels.compiled_lines import CompiledLines  # as above

        explanation = self.explanation()
        with self._lock:
            if self._compiled_lines is None:
                self._compiled_lines = CompiledLines(self.recording, explanation.compiles, explanation.graphs)
            return self._compiled_lines

    def node_values(self) -> NodeValues | None:
        """Return the recorded values of nodes, ``None`` if there are none."""
        from tui.node_values import NodeValues  # as above

        table = self.explanation().values
        with self._lock:
            if self._values is None and table is not None:
                self._values = NodeValues(table)
            return self._values


def _mark_running(explanation: Explanation) -> Explanation:
    """Mark unfinished compiles as running. They did not fail: the recording only ends there so far."""
    compiles = (
        replace(item, outcome="running", reason=None) if item.outcome == "error" and not item.error else item
        for item in explanation.compiles
    )
    notes = tuple(note for note in explanation.notes if note != CUT_SHORT)
    return replace(explanation, compiles=tuple(compiles), notes=notes)


class _SummaryRecording:
    """The part of a recording that the summary screens need.

    There may be 10,000 guards on one frame, and ten graphs and a hundred kernels in a compile. Those of a compile are
    read when the user looks at it. Only Dynamo's graphs are counted.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def __getattr__(self, name: str) -> Any:
        return getattr(self._recording, name)

    def graphs(self, _compile_id: str | None = None) -> tuple[Graph, ...]:
        return self._recording.graphs_at("dynamo")

    def guards(self, _compile_id: str | None = None) -> tuple[Guard, ...]:
        return ()

    def kernels(self) -> tuple[Kernel, ...]:
        return ()

    def events(self, kind: str | None = None, *, compile_id: str | None = None) -> Iterable[Event]:
        """Yield the events of a kind, without those on CUDA graphs, which no screen shows."""
        from dynadiag.explanation.cuda_graphs import CUDA_GRAPH_EVENTS  # imported in a worker, as above

        return () if kind in CUDA_GRAPH_EVENTS else self._recording.events(kind, compile_id=compile_id)


class OpenRecordings(NamedTuple):
    """The session of the first readable recording, and its number among all, whose paths are empty if there is one."""

    session: Session
    paths: Sequence[Path]
    rank: int


def open_recordings(named: Sequence[Path]) -> OpenRecordings:
    """Open recordings, each named or in a named folder. Raises `UnreadableInput` if none can be read."""
    folders = [path.is_dir() or has_recordings(path) for path in named]
    paths = [
        one
        for path, is_folder in zip(named, folders, strict=True)
        for one in (list_recordings(path) if is_folder else [path])
    ]
    problems = []
    for rank, path in enumerate(paths):
        try:
            session = Session.open(path)
        except UnreadableInput as error:
            problems.append(error)
        else:
            return OpenRecordings(session, paths if len(paths) > 1 else (), rank)
    raise problems[0]
