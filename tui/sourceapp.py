"""What the app reads from: one recording at a time, that may grow, or go, or be one of a folder's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from textual.actions import ActionParseResult
from textual.dom import DOMNode

from dynadiag.errors import DynadiagError, UnreadableInput
from tui.lineapp import LineApp
from tui.roles import one_line
from tui.session import JOURNAL, Session
from tui.watch import Watch

__all__ = ["SourceApp"]

_LAST_READS = 5.0  # seconds for workers that still read from the recording that is left


class SourceApp(LineApp):
    """Reads recordings in workers, and goes on with what was read once all of it is there."""

    def __init__(self, session: Session, paths: Sequence[Path] = (), rank: int = 0) -> None:
        """Browse `session`; where it is one of a folder's recordings, those are `paths`, and it is the `rank`-th."""
        super().__init__()
        self.session = session
        self.paths, self.rank = paths, rank
        self.reading = 0  # recordings that are being read
        self._asked = 0  # recordings that were asked for
        self._recorder = Watch(session.path, live=session.live)

    def on_mount(self) -> None:
        self.set_interval(self._recorder.interval, self.look)

    def taken(self) -> None:
        """`session` is another one."""

    def not_taken(self) -> None:
        """What was asked for could not be read: `session` is the one that it was."""

    def look(self) -> None:
        """See whether the recording has grown, or gone."""
        seen = self._recorder.look()
        ended = Path(str(self.session.path).removesuffix(JOURNAL))
        if seen == "gone" and ended.is_file():
            self._read(ended, self._take_ended)  # a search: its journal has become its recording
        elif seen == "gone":
            self.say_problem(f"{self.session.path} is gone: what was read of it is still shown")
        elif seen == "grown":
            self.action_reload()

    def action_reload(self) -> None:
        self._read(self.session.path, self._take)

    def open_rank(self, rank: int, then: Callable[[], None]) -> None:
        """Go on with another recording of the folder."""

        def arrived(session: Session) -> None:
            self.rank, self._recorder = rank, Watch(session.path, live=session.live)
            self._take(session)
            then()

        self._read(self.paths[rank], arrived)

    def say_problem(self, reason: str) -> None:
        """Something could not be read."""
        self.notify(one_line(reason), title="cannot read", severity="error", timeout=10, markup=False)

    @contextmanager
    def saying_problems(self) -> Iterator[None]:
        """Around what a key or a message leads to: where the recording turns out to be damaged, that is said."""
        try:
            yield
        except UnreadableInput as error:
            self.say_problem(str(error))

    async def run_action(
        self,
        action: str | ActionParseResult,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        with self.saying_problems():
            return await super().run_action(action, default_namespace, namespaces)
        return True

    def _read(self, path: Path, then: Callable[[Session], None]) -> None:
        self.reading += 1
        self._asked += 1
        serial = self._asked

        def read() -> None:
            try:
                with self._recorder.timed():
                    session = Session.open(path)
                    session.explanation()
            except DynadiagError as error:
                self.call_from_thread(arrive, None, str(error))
            else:
                self.call_from_thread(arrive, session, "")

        def arrive(session: Session | None, problem: str) -> None:
            self.reading -= 1
            if session is None:
                self.say_problem(problem)
                self.not_taken()
            elif serial == self._asked:
                then(session)
            else:
                session.close()  # something else was asked for meanwhile

        self.run_worker(read, thread=True, exclusive=True, group="reopen")

    def _take_ended(self, session: Session) -> None:
        self._recorder = Watch(session.path, live=session.live)
        self._take(session)

    def _take(self, session: Session) -> None:
        old, self.session = self.session, session
        self._recorder.live = session.live
        self.taken()
        self.set_timer(_LAST_READS, old.close)
