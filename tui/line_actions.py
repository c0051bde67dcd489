"""The messages over the screen, and actions on the focused list or text: search, filter, write to a file, edit."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from textual.app import App, SuspendNotSupported
from textual.notifications import Notification, Notify, SeverityLevel

from dynadiag.errors import DynadiagError
from tui.styled_text import clipboard_text, one_line
from tui.widgets.lines import FilterableLines, Lines
from tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from tui.documents import Document

_LEAST_SECONDS = 0.1  # that a message is shown for
# These editors take `file:line`. All others take `+line file`, as vi does.
_COLON_EDITORS = frozenset({"subl", "zed", "hx", "helix"})
_GOTO_EDITORS = frozenset({"code", "codium", "cursor"})
_MAX_NAME = 60  # characters of the name of a copy
_SUFFIXES = {"source": ".py", "graph": ".py", "kernel": ".py", "diff": ".diff"}


def editor_command(editor: str, path: Path, line: int) -> list[str]:
    """Return the command line that opens `path` at `line` (from 1)."""
    words = shlex.split(editor) or ["vi"]
    name = Path(words[0]).name
    if name in _GOTO_EDITORS:
        return [*words, "--goto", f"{path}:{line}"]
    if name in _COLON_EDITORS:
        return [*words, f"{path}:{line}"]
    return [*words, f"+{line}", str(path)]


def edit_path(app: App[int], path: Path, line: int) -> str | None:
    """Open a file at a line (from 1) and suspend the browser meanwhile. Return an error message or ``None``."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        command = editor_command(editor, path, line)
        with app.suspend():
            return _problem_of(command)
    except SuspendNotSupported:
        return "this terminal cannot be given to an editor"
    except ValueError as error:  # a quote in $EDITOR is not closed
        return f"{editor}: {error}; set $EDITOR"


def _problem_of(command: Sequence[str]) -> str | None:
    """Run an editor, and return why it failed. It raises nothing: Textual would not take the terminal back."""
    try:
        code = subprocess.run(command, check=False).returncode
    except OSError as error:
        return f"{command[0]}: {error.strerror}; set $EDITOR"
    return None if code == 0 else f"{command[0]} exited with code {code}"


@dataclass
class _Message(Notification):
    """A message whose time is never over before it is shown.

    Textual looks whether it is, and makes the message's timer later. A timer of less than no time never returns.
    """

    @property
    def time_left(self) -> float:
        return max(super().time_left, _LEAST_SECONDS)

    @property
    def has_expired(self) -> bool:
        return super().time_left <= 0


class LineActionsApp(App[int]):
    """The actions that every list and text understands, and messages."""

    _copies: Path | None = None  # the folder with those documents that an editor was given

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        """Show a message, unless the same one is shown: one that comes with every key would fill the screen."""
        made = _Message(message, title, severity, self.NOTIFICATION_TIMEOUT if timeout is None else timeout, markup)
        if not any((one.message, one.title) == (message, title) for one in self._notifications):
            self.post_message(Notify(made))

    def report_problem(self, reason: str) -> None:
        self.notify(one_line(reason), title="cannot read", severity="error", timeout=10, markup=False)

    @contextmanager
    def reporting_problems(self, what: str = "") -> Iterator[None]:
        """Show the error if the body finds a damaged recording, or a file that cannot be used."""
        try:
            yield
        except (DynadiagError, OSError) as error:
            self.report_problem(f"{what}{error}")

    @property
    def focused_lines(self) -> Lines | None:
        """The list or text that has the focus, or ``None``."""
        return self.focused if isinstance(self.focused, Lines) else None

    async def prompt(self) -> Prompt:
        """Return the prompt of the screen on top. A dialog gets one when it is needed first."""
        screen = self.screen
        if not screen.query(Prompt):
            await screen.mount(Prompt(id="prompt"))
        return screen.query(Prompt).first()

    async def action_search(self) -> None:
        if (lines := self.focused_lines) is not None:
            start = lines.cursor

            def preview(text: str) -> str:
                lines.set_reactive(Lines.cursor, min(start, max(0, lines.count - 1)))
                lines.search(text)
                return lines.match_position()

            def cancel() -> None:
                lines.search("")
                lines.move_to(start)

            await (await self.prompt()).ask(
                "/",
                lines.matcher.pattern,
                lambda text: self._search(lines, text),
                preview=preview if lines.is_quick else None,
                cancel=cancel if lines.is_quick else None,
            )

    def _search(self, lines: Lines, text: str) -> None:
        if not lines.search(text):
            self.notify(f"not found here: {text} (0 searches the whole recording)", severity="warning", markup=False)

    async def action_filter(self) -> None:
        lines = self.focused_lines
        if isinstance(lines, FilterableLines) and lines.unfiltered_because:
            self.notify(lines.unfiltered_because, severity="warning")
        elif isinstance(lines, FilterableLines):
            before, whole = lines.filter, lines

            def preview(text: str) -> str:
                whole.set_filter(text)
                return f"{whole.count:,} of {whole.whole_count:,}"

            await (await self.prompt()).ask(
                "filter: ",
                before,
                whole.set_filter,
                preview=preview if lines.is_quick else None,
                cancel=lambda: whole.set_filter(before),
            )

    async def action_write(self) -> None:
        if (lines := self.focused_lines) is not None:
            await (await self.prompt()).ask("write to: ", "", lambda name: self.write_new_file(name, lines.full_text()))

    def write_new_file(self, name: str, text: str) -> None:
        """Write a text to a file that does not exist yet, and say so. An empty name writes nothing."""
        if not name:
            return
        path = Path(name)
        try:
            path = path.expanduser()
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            self.notify(f"{path} exists: choose another name", severity="error", markup=False)
        except (OSError, RuntimeError) as error:  # RuntimeError: no such home folder
            reason = error.strerror if isinstance(error, OSError) else error
            self.notify(f"cannot write {path}: {reason}", severity="error", markup=False)
        else:
            self.notify(f"{len(text.splitlines()):,} lines written to {path}", markup=False)

    async def action_export(self) -> None:
        """Ask for a file name, and write the screen to a new file: a picture if it ends in .svg, otherwise text."""
        await (await self.prompt()).ask("write the screen to (.svg or .txt): ", "", self._export)

    def _export(self, name: str) -> None:
        # The prompt still covers a line of the screen.
        self.call_after_refresh(lambda: self.write_new_file(name, self._drawn(svg=name.endswith(".svg"))))

    def _drawn(self, *, svg: bool) -> str:
        if svg:
            return self.export_screenshot()
        strips = self.screen._compositor.render_strips()
        return "".join(f"{clipboard_text(strip.text.rstrip())}\n" for strip in strips)

    def action_edit(self) -> None:
        if (lines := self.focused_lines) is not None and (document := lines.document) is not None:
            self.edit_document(document, lines.cursor + 1)

    def edit_document(self, document: Document, line: int) -> None:
        """Open a document in the user's editor at a line, from 1: the user's file if it exists, otherwise a copy.

        The copy stays, also when the browser has ended: an editor like ``code`` hands the file over to another process
        and ends before that reads it.
        """
        path = Path(document.ref.title)
        if document.ref.kind != "source" or not path.is_file():
            if self._copies is None:
                self._copies = Path(mkdtemp(prefix="dynadiag-"))
            name = re.sub(r"\W+", "-", document.ref.key)[-_MAX_NAME:]
            path = Path(self._copies, f"{name}{_SUFFIXES.get(document.ref.kind, '.txt')}")
            path.write_text("\n".join(document.lines) + "\n", encoding="utf-8", errors="replace")
        self._report_editor(edit_path(self, path, line))
        with suppress(OSError, UnicodeError):
            recorded = "\n".join(document.lines).replace("\r", "")
            if not document.part and path.read_text(encoding="utf-8").removesuffix("\n") != recorded:
                self.notify("this file is not what was recorded: lines may have moved", severity="warning")

    def edit_file(self, path: Path) -> None:
        """Open a repro in the user's editor. A recording could name any file, so only existing ``.py`` files open."""
        if path.suffix == ".py" and path.is_file():
            self._report_editor(edit_path(self, path, 1))
        else:
            self._report_editor(f"{path}: this repro does not exist any more")

    def _report_editor(self, problem: str | None) -> None:
        if problem:
            self.notify(problem, severity="error", markup=False)

    def clear_focused(self) -> bool:
        """Clear the search and the filter of the focused lines. Return whether they had one."""
        lines = self.focused_lines
        searched = lines is not None and bool(lines.matcher.pattern)
        filtered = isinstance(lines, FilterableLines) and bool(lines.filter)
        if lines is not None:
            lines.search("")
        if isinstance(lines, FilterableLines) and filtered:
            lines.set_filter("")
        return searched or filtered
