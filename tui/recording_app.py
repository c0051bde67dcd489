"""Reads the recording of the application: it may grow, disappear, or be one of several in a folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

from rich.console import RenderableType
from textual.actions import ActionParseResult
from textual.dom import DOMNode

from dynadiag.errors import DynadiagError, UnreadableInput
from dynadiag.kernels import isolated_job
from dynadiag.recording.opening import list_recordings
from tui.line_actions import LineActionsApp
from tui.session import Session
from tui.styled_text import one_line

_CHECK_INTERVAL = 1.0  # seconds between two checks
_REREAD_FACTOR = 10  # if reading took one second, the next reading is ten seconds later


class FileWatch:
    """Checks a file by its size and modification time. Only a live recording is read again."""

    def __init__(self, path: Path, *, live: bool) -> None:
        self.live = live
        self.interval = _CHECK_INTERVAL
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

    @contextmanager
    def backing_off(self) -> Iterator[None]:
        """Measure a reading: the longer it takes, the later the next one."""
        start = time.monotonic()
        try:
            yield
        finally:
            end = time.monotonic()
            self._next_check = end + _REREAD_FACTOR * (end - start)

    def _state(self) -> tuple[int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_size, status.st_mtime_ns


_SECONDS_IN_USE = 0.3  # after a key
_CLOSE_DELAY = 5.0  # seconds before the old recording is closed, as workers may still read it


class RecordingApp(LineActionsApp):
    """Opens recordings in a worker and switches to one when it has been read completely."""

    def __init__(self, session: Session, paths: Sequence[Path] = (), rank: int = 0, folder: Path | None = None) -> None:
        """Browse `session`. If it is one of a folder's recordings, `paths` are those and `rank` its index.

        ``folder`` is the state folder: it has the bookmarks, and its recordings are listed.
        """
        super().__init__()
        self.folder = folder
        self.session = session
        self.paths, self.rank = paths, rank
        self.chosen_keys: Mapping[str, str] = {}  # the user's own keys by the id of their action
        self.leaving = False  # whether the browser is about to end
        self._last_action = 0.0  # when an action was run
        self.reading = 0  # recordings being read
        self._last_request = 0  # the number of the last request
        self._file_watch = FileWatch(session.path, live=session.live)

    def on_mount(self) -> None:
        self.set_interval(self._file_watch.interval, self.check_recording)

    @property
    def is_in_use(self) -> bool:
        """Whether a key was pressed a moment ago."""
        return monotonic() - self._last_action < _SECONDS_IN_USE

    def exit(self, result: int | None = None, return_code: int = 0, message: RenderableType | None = None) -> None:
        """End the browser. Keys that were pressed after the last one do nothing: the screens are being closed."""
        self.leaving = True
        isolated_job.stop_all()  # a worker waits for each of them, and the browser for its workers
        super().exit(result, return_code, message)

    # The recording

    def session_replaced(self) -> None:
        """Called when `session` is another recording."""

    def session_kept(self) -> None:
        """Called when a requested recording could not be read, so that `session` stays."""

    def check_recording(self) -> None:
        """Check whether the recording has grown or disappeared."""
        seen = self._file_watch.check()
        ended = self.session.final_path
        if seen == "gone" and ended.is_file():
            self._read(ended, self._use_finished)  # a search has ended: its journal has become its recording
        elif seen == "gone":
            self.report_problem(f"{self.session.path} was deleted: the browser shows what it has read")
        elif seen == "grown":
            self.action_reload()

    def action_reload(self) -> None:
        """Read the recording again."""
        self._read(self.session.path, self._use)

    def open_rank(self, rank: int, then: Callable[[], None]) -> None:
        """Switch to another recording of the folder, then call `then`."""

        def arrived(session: Session) -> None:
            self.rank, self._file_watch = rank, FileWatch(session.path, live=session.live)
            self._use(session)
            then()

        self._read(self.paths[rank], arrived)

    def open_recording(self, path: Path, then: Callable[[], None]) -> None:
        """Open another recording, or the first of a folder, beside those that are open.

        Then call `then` instead of `session_replaced`. Raises `UnreadableInput` if the folder has no recording.
        """
        paths = [*(self.paths or [self.session.path])]
        opened = {one.resolve() for one in paths}
        found = list_recordings(path) if path.is_dir() else (path,)
        paths += [one for one in found if one.resolve() not in opened]
        path = found[0]
        known = next(number for number, one in enumerate(paths) if one.resolve() == path.resolve())

        def arrived(session: Session) -> None:
            old, self.session = self.session, session
            self.paths, self.rank = paths if len(paths) > 1 else (), known
            self._file_watch = FileWatch(session.path, live=session.live)
            then()
            self.set_timer(_CLOSE_DELAY, old.close)

        self._read(path, arrived)

    def report_problem(self, reason: str) -> None:
        """Show an error message."""
        self.notify(one_line(reason), title="cannot read", severity="error", timeout=10, markup=False)

    @contextmanager
    def reporting_problems(self) -> Iterator[None]:
        """Show the error if the body finds a damaged recording."""
        try:
            yield
        except UnreadableInput as error:
            self.report_problem(str(error))

    async def run_action(
        self,
        action: str | ActionParseResult,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """Run an action, and show the error if it finds a damaged recording. Once the browser ends, none is run."""
        if self.leaving:
            return False
        self._last_action = monotonic()
        with self.reporting_problems():
            return await super().run_action(action, default_namespace, namespaces)
        return True

    def _read(self, path: Path, then: Callable[[Session], None]) -> None:
        self.reading += 1
        self._last_request += 1
        serial = self._last_request

        def read() -> None:
            try:
                with self._file_watch.backing_off():
                    session = Session.open(path)
                    session.explanation()
            except DynadiagError as error:
                self.call_from_thread(arrive, None, str(error))
            else:
                self.call_from_thread(arrive, session, "")

        def arrive(session: Session | None, problem: str) -> None:
            self.reading -= 1
            if session is None:
                self.report_problem(problem)
                self.session_kept()
            elif serial == self._last_request:
                then(session)
            else:
                session.close()  # a newer request has replaced this one

        self.run_worker(read, thread=True, exclusive=True, group="reopen")

    def _use_finished(self, session: Session) -> None:
        self._file_watch = FileWatch(session.path, live=session.live)
        self._use(session)

    def _use(self, session: Session) -> None:
        old, self.session = self.session, session
        self._file_watch.live = session.live
        self.session_replaced()
        self.set_timer(_CLOSE_DELAY, old.close)
