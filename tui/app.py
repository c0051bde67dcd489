"""The application: its keys, its jumps, the recordings that are open, and the status line."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult, SystemCommand
from textual.binding import BindingType
from textual.screen import Screen
from textual.widgets import Static

from tui.command_actions import CommandActionsApp
from tui.key_bindings import footer_key, hidden_key
from tui.key_queue import KeyQueue
from tui.location import Location
from tui.session import Session
from tui.settings_app import SettingsApp
from tui.views import RANKS, SCREENS
from tui.views.base import View
from tui.views.overview import MIN_DETAILED, MIN_WIDE
from tui.widgets.ground import GroundContainer, GroundScreen
from tui.widgets.keys import Keys
from tui.widgets.prompt import Prompt
from tui.widgets.tabs import Tabs

if TYPE_CHECKING:
    from textual.command import Provider

    from tui.bookmarks import Bookmark


MIN_SIZE = (40, 10)  # columns and rows; nothing can be laid out in less
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)  # signals after which the terminal must be restored too
_SIGNAL_EXIT_BASE = 128  # what a shell adds to a signal in an exit code
_MAX_SHORT_ROWS = 30  # with fewer rows, panes have no frames
_MAX_MARK_CHARS = 200  # characters of a line that a bookmark keeps


def _palette_providers() -> type[Provider]:
    """Return the provider of the command palette. It is imported when the palette opens first."""
    from tui.command_palette import ActionProvider

    return ActionProvider


class Browser(SettingsApp, CommandActionsApp):
    """The terminal browser of one recording, or of several one after another."""

    CSS_PATH = "browser.tcss"
    TITLE = "dynadiag"
    ALLOW_SELECT = False  # Textual's own selection fails on a message; y copies
    COMMANDS = {_palette_providers}  # noqa: RUF012 - Textual declares it, as a class variable
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (MIN_DETAILED, "-medium"), (MIN_WIDE, "-wide")]  # noqa: RUF012 - as above
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            hidden_key(one.key, f"view('{one.name}')", f"{one.title}: {one.purpose}", f"view.{one.name}")
            for one in (*SCREENS, RANKS)
        ),
        hidden_key(">", "rank(1)", "next recording", "ranks.next"),
        hidden_key("<", "rank(-1)", "previous recording", "ranks.previous"),
        hidden_key("tab", "pane(1)", "next pane", "app.next-pane", priority=True),
        hidden_key("shift+tab", "pane(-1)", "previous pane", "app.previous-pane", priority=True),
        footer_key("backspace,H,ctrl+o", "back", "back", "app.back"),
        hidden_key("L", "forward", "forward", "app.forward"),
        footer_key("?,f1", "help", "help", "app.help"),
        footer_key(":,ctrl+p", "command_palette", "all actions", "app.palette"),
        hidden_key("B", "search_program('bisect')", "find the part of the compiler at fault", "app.bisect"),
        hidden_key("M", "search_program('minify')", "write a small program with the failure", "app.minify"),
        hidden_key("t", "theme", "next theme", "app.theme", "next theme: dark, light, 16 colors, color-blind"),
        hidden_key("X", "explain", "run the program again and record it (explain)", "app.explain"),
        hidden_key("F", "fix", "look for changes that remove breaks and recompiles (fix)", "app.fix"),
        hidden_key("T", "compare", "time the function in each compile mode (compare)", "app.compare"),
        hidden_key("C", "diff", "compare with another recording (diff)", "app.diff"),
        hidden_key("O", "open", "open another recording, too", "app.open"),
        hidden_key("m", "mark", "bookmark this line, with a note", "app.mark"),
        hidden_key("'", "marks", "list the bookmarks", "app.marks"),
        hidden_key("W", "export", "write the screen to a file, as SVG or text", "app.export"),
        hidden_key("P", "report", "write the recording as an HTML page (report)", "app.report"),
        hidden_key("r", "reload", "reload the recording", "app.reload"),
        footer_key("q", "quit", "quit", "app.quit"),
        hidden_key("ctrl+z", "suspend_process", "suspend (`fg` resumes)", "app.suspend"),
        hidden_key("escape", "escape", "clear the search and the filter, or go back", "app.escape"),
    ]

    def __init__(
        self,
        session: Session,
        paths: Sequence[Path] = (),
        rank: int = 0,
        *,
        place: str = "",
        folder: Path | None = None,
        pick: bool = False,
        ahead: bool = False,
    ) -> None:
        """``place`` is the source line to open at, as ``FILE:LINE``.

        ``folder`` is the state folder: it has the bookmarks, and its recordings are listed, if ``pick`` at once. With
        ``ahead`` the other screens are filled while no key is pressed, so that a key only has to show them.
        """
        super().__init__(session, paths, rank, folder)
        self._place, self._pick, self._ahead = place, pick, ahead
        self._typed = KeyQueue(self, super().on_event, lambda: self._pending_jumps > 0)

    def get_default_screen(self) -> Screen[None]:
        return GroundScreen(id="_default")

    def compose(self) -> ComposeResult:
        yield Tabs(id="tabs")
        with GroundContainer(id="views"):
            yield self.create_first(self._screens[0])
        yield Prompt(id="prompt")
        yield Static(id="status", markup=False)
        yield Keys(id="keys")
        yield Static("too small: {}x{} at least".format(*MIN_SIZE), id="small", markup=False)

    def on_load(self) -> None:
        """Handle signals before the driver changes the terminal."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.exit, _SIGNAL_EXIT_BASE + number)

    def on_mount(self) -> None:
        # Textual draws again after `fg` only where the size has changed; the terminal's screen is empty.
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        self.use_settings()
        self._update_tabs()
        self.current.first_focus().focus()
        self.set_status("", "")
        if self._pick:
            self.action_open()

    @property
    def busy(self) -> bool:
        """Whether something is being read, a jump has not finished, or a key waits. Tests wait for this."""
        return not self._typed.is_empty or super().busy

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key) and not event.is_forwarded:
            await self._typed.put(event)
        else:
            await super().on_event(event)

    def on_key_queue_handled(self, message: KeyQueue.Handled) -> None:
        self._typed.handled(message.number)

    def action_pane(self, direction: int) -> None:
        """Move the focus to the next or previous pane of the screen; on other screens, to the next widget."""
        step = getattr(self.current, "step", None)
        if len(self.screen_stack) > 1 or step is None or not step(direction):
            self.screen.focus_next() if direction > 0 else self.screen.focus_previous()

    async def action_search(self) -> None:
        if not await self.current.ask_search():
            await super().action_search()

    # Other actions

    def action_help(self) -> None:
        """Explain the words on the cursor's line, and show every key of the current screen."""
        from dynadiag.explanation.glossary import explain_words
        from tui.help import HelpScreen

        view = self.current
        own = [
            item for kind in type(view).__mro__ if issubclass(kind, View) for item in kind.__dict__.get("BINDINGS", ())
        ]
        sections = [(type(view).TITLE, own), ("Everywhere", type(self).BINDINGS)]
        lines, words = self.focused_lines, []
        with self.reporting_problems():  # torch's registry may be damaged
            if lines is not None and lines.count:
                words = list(explain_words(f"{lines.border_title or ''} {lines.text_of(lines.cursor)}"))
        self.push_screen(HelpScreen(sections, self.chosen_keys, words))

    def action_command_palette(self) -> None:
        from tui.command_palette import Palette

        if not isinstance(self.screen, Palette):
            self.push_screen(Palette())

    def action_help_quit(self) -> None:
        """Answer ctrl+c with a hint. It does not quit: the user may mean to stop a search or to copy text."""
        self.notify("press q to quit")

    def get_system_commands(self, _screen: Screen[object]) -> Iterable[SystemCommand]:
        """Return no commands of Textual's own; the palette lists ours."""
        return ()

    def on_resize(self, event: events.Resize) -> None:
        width, height = MIN_SIZE
        self.screen.set_class(event.size.width < width or event.size.height < height, "-tiny")
        self.screen.set_class(event.size.height < _MAX_SHORT_ROWS, "-short")

    def action_open(self) -> None:
        """List the recordings of the state folder and of the open ones' folders, and open the chosen one, too."""

        def open_first_screen(path: Path | None) -> None:
            if path is not None:
                self.go_to_in((path, Location(SCREENS[0].name)))

        self.pick_recording(open_first_screen, self.session.path, first=self._pick)
        self._pick = False

    # Bookmarks

    async def action_mark(self) -> None:
        """Ask for a note, and keep it with the cursor's line as a bookmark."""
        from tui.bookmarks import Bookmark

        lines, place = self.focused_lines, self.location
        if self.folder is None or lines is None:
            self.notify("no line to mark" if lines is None else "there is no folder for bookmarks", severity="warning")
            return
        text = lines.text_of(lines.cursor).strip()[:_MAX_MARK_CHARS] if lines.count else ""

        def mark(note: str) -> None:
            with self.reporting_problems("the bookmark is not kept: "):
                self._keep_marks([*self._marks(), Bookmark(place, text, note)])

        await (await self.prompt()).ask("note (may be empty): ", "", mark)

    def _marks(self) -> list[Bookmark]:
        from tui.bookmarks import bookmark_path, read_bookmarks

        return read_bookmarks(bookmark_path(self.folder, self.session.run)) if self.folder else []

    def _keep_marks(self, marks: list[Bookmark]) -> None:
        from tui.bookmarks import bookmark_path, write_bookmarks

        with self.reporting_problems("the bookmarks are not kept: "):
            write_bookmarks(bookmark_path(self.folder or Path(), self.session.run), marks)
            self.notify(f"bookmarks: {len(marks):,}")

    def action_marks(self) -> None:
        from tui.bookmarks import BookmarkList

        if marks := self._marks():
            self.push_screen(BookmarkList(marks, self._keep_marks), self.go_to)
        else:
            self.notify("there is no bookmark yet: m makes one")
