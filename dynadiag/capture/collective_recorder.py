"""Records the process groups and collectives of a process, and that it stands still between two of them.

Collectives of compiled code and C++ have no event of their own. The next event says how many there were.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any

from dynadiag.capture.collectives import (
    CollectiveLimit,
    UnseenCollectives,
    describe_collective,
    describe_group,
    describe_standstill,
)
from dynadiag.torch_private import process_groups

if TYPE_CHECKING:
    from dynadiag.capture.recorder import Recorder


_FIRST_PAUSE = 2.0  # seconds without a collective


class StandstillWatch:
    """Calls ``on_standstill`` with the time of the last progress, and the main thread's frame, while there is none.

    There is progress if ``progress`` returns something else than before.
    """

    def __init__(
        self,
        progress: Callable[[], object],
        on_standstill: Callable[[float, FrameType], None],
        first: float = _FIRST_PAUSE,
    ) -> None:
        self._progress = progress
        self._on_standstill = on_standstill
        self._first = first
        self._ended = threading.Event()

    def start(self) -> None:
        """Watch until `stop`, or until the process ends. A fork has no such thread."""
        with contextlib.suppress(RuntimeError):  # no thread can be started: everything else is still recorded
            threading.Thread(target=self._run, name="dynadiag-standstill", daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        self._ended.set()

    def _run(self) -> None:
        with contextlib.suppress(Exception):  # a thread of ours must print no traceback into the program's output
            self._watch()

    def _watch(self) -> None:
        known, since, pause = self._progress(), time.time(), self._first
        while not self._ended.wait(pause):
            now = self._progress()
            if now == known:
                pause *= 2
                self._look(since)
            else:
                known, since, pause = now, time.time(), self._first

    def _look(self, since: float) -> None:
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        if frame is not None:
            self._on_standstill(since, frame)


class CollectiveRecorder:
    """Appends the collectives of this process to the journal of a recorder. Safe for any thread."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._watch: StandstillWatch | None = None
        self.failure: Exception | None = None  # why collectives are not recorded
        self.reset()

    def reset(self) -> None:
        """Begin to count at 0. A forked child has begun no collective, and no thread watches it."""
        self._limit = CollectiveLimit()
        self._unseen, self._watch = UnseenCollectives(), None

    def start(self) -> None:
        """Listen to process groups."""
        self.failure = None
        try:
            process_groups.observe(self._on_collective)
        except Exception as error:  # noqa: BLE001 - all but collectives is recorded all the same
            self.failure = error

    def stop(self) -> None:
        """Stop listening and watching."""
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        with contextlib.suppress(Exception):  # the process goes on all the same
            process_groups.stop_observing(self._on_collective)

    def unseen_data(self) -> dict[str, int]:
        """Return the data for an event on how many collectives began unseen since the last one; empty if none did."""
        count = sum(self._unseen.since(process_groups.issued()).values())
        return {"unseen": count} if count else {}

    def append_unseen(self) -> None:
        """Append how many collectives have begun that no event reports."""
        self._append_unseen(self._unseen.since(process_groups.issued()), self._limit.count + 1)

    def _append_unseen(self, counts: Mapping[str, int], before: int) -> None:
        """Append how many collectives of each group began unseen. ``before`` is the number of the next collective."""
        for group, count in counts.items():
            if count:
                self._recorder.append("unseen", {"group": group, "count": count, "before": before}, {})

    def _on_collective(self, method: str, group: Any, frame: FrameType) -> None:
        """Append a collective before it begins, or a new process group. Never raises."""
        try:
            if method == process_groups.CREATED:
                self._begin_group(group, frame)
            if self._watch is None:
                self._watch = StandstillWatch(self._progress, self._on_standstill)
                self._watch.start()
            numbers, name = process_groups.issued_after(method, group), str(group.group_name)
            self._unseen.step(name, numbers)
            if method == process_groups.ENDED:
                self._append_unseen({name: self._unseen.take(name)}, self._limit.count + 1)
            elif method != process_groups.CREATED and self._limit.admit(time.time()):
                self._append_unseen({name: self._unseen.take(name)}, self._limit.count)
                data = describe_collective(method, group, frame, self._limit.count)
                self._recorder.append("collective", data, {})
                self._recorder.record_source(data["file"], {})
        except Exception as error:  # noqa: BLE001 - it would reach the user's program through its collective
            self._recorder.give_up(error)

    def _begin_group(self, group: Any, frame: FrameType) -> None:
        data = describe_group(group, frame)
        context = {} if data["ranks"] or data["rank"] is None else {"rank": data["rank"]}
        self._recorder.append("group", data, context)

    def _progress(self) -> object:
        """What changes when this rank begins a collective."""
        return self._limit.count, process_groups.issued()

    def _on_standstill(self, since: float, frame: FrameType) -> None:
        """Append where the main thread is that has begun no collective for some time. Never raises."""
        try:
            if self._recorder.is_recording:
                self.append_unseen()
                data = describe_standstill(since, frame, self._limit.count)
                self._recorder.append("standstill", data, {})
                self._recorder.record_source(data["file"], {})
        except Exception as error:  # noqa: BLE001 - a thread of ours must print no traceback into the program's output
            self._recorder.give_up(error)
