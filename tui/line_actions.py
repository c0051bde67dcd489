"""Actions on the focused list or text: search, filter, write to a file, open in an editor; and the screen as a file."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from textual.app import App, SuspendNotSupported

from tui.notifications import NotifyingApp
from tui.styled_text import clipboard_text
from tui.widgets.lines import FilterableLines, Lines
from tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from tui.documents import Document

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


def edit_document(app: App[int], document: Document, line: int, folder: Path) -> str | None:
    """Open a document: the user's file if it exists, otherwise a copy. Return an error message or ``None``.

    The copy stays in `folder`: an editor like ``code`` hands the file over to another process and ends before that
    reads it.
    """
    own = Path(document.ref.title)
    if document.ref.kind == "source" and own.is_file():
        return edit_path(app, own, line)
    name = re.sub(r"\W+", "-", document.ref.key)[-_MAX_NAME:]
    copy = folder / f"{name}{_SUFFIXES.get(document.ref.kind, '.txt')}"
    copy.write_text("\n".join(document.lines) + "\n", encoding="utf-8", errors="replace")
    return edit_path(app, copy, line)


def edit_path(app: App[int], path: Path, line: int) -> str | None:
    """Open a file at a line (from 1) and suspend the browser meanwhile. Return an error message or ``None``."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        command = editor_command(editor, path, line)
        with app.suspend():
            code = subprocess.run(command, check=False).returncode
    except SuspendNotSupported:
        return "this terminal cannot be given to an editor"
    except OSError as error:
        return f"{editor}: {error.strerror}; set $EDITOR"
    except ValueError as error:  # a quote in $EDITOR is not closed
        return f"{editor}: {error}; set $EDITOR"
    return None if code == 0 else f"{command[0]} exited with code {code}"


class LineActionsApp(NotifyingApp):
    """The actions that every list and text understands."""

    _copies: TemporaryDirectory[str] | None = None  # of documents that an editor was given

    @property
    def focused_lines(self) -> Lines | None:
        """The list or text that has the focus, or ``None``."""
        return self.focused if isinstance(self.focused, Lines) else None

    async def prompt(self) -> Prompt:
        """Return the prompt of the screen on top. A dialog gets one when it is needed first."""
        screen = self.screen
        if known := screen.query(Prompt):
            return known.first()
        made = Prompt(id="prompt")
        await screen.mount(made)
        return made

    async def action_search(self) -> None:
        """Ask for a text and search the focused lines for it."""
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
        lines.focus()
        if not lines.search(text):
            self.notify(f"not found here: {text} (0 searches the whole recording)", severity="warning", markup=False)

    async def action_filter(self) -> None:
        """Ask for a text and show only the lines that contain it."""
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
                lambda text: self._filter(whole, text),
                preview=preview if lines.is_quick else None,
                cancel=lambda: self._filter(whole, before),
            )

    def _filter(self, lines: FilterableLines, text: str) -> None:
        lines.focus()
        lines.set_filter(text)

    async def action_write(self) -> None:
        """Ask for a file name and write the focused text to a new file."""
        if (lines := self.focused_lines) is not None:
            await (await self.prompt()).ask("write to: ", "", lambda text: self._write(lines, text))

    def _write(self, lines: Lines, name: str) -> None:
        lines.focus()
        self.write_new_file(name, lines.full_text())

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
        """Return the screen as it is drawn."""
        if svg:
            return self.export_screenshot()
        strips = self.screen._compositor.render_strips()
        return "".join(f"{clipboard_text(strip.text.rstrip())}\n" for strip in strips)

    def action_edit(self) -> None:
        """Open the focused document in the user's editor."""
        if (lines := self.focused_lines) is not None and (document := lines.document) is not None:
            self.edit_document(document, lines.cursor + 1)

    def edit_document(self, document: Document, line: int) -> None:
        """Open a document in the user's editor at a line, from 1."""
        if self._copies is None:
            self._copies = TemporaryDirectory(prefix="dynadiag-")
        self._report_editor(edit_document(self, document, line, Path(self._copies.name)))

    async def on_unmount(self) -> None:
        """Remove the copies that an editor was given."""
        if self._copies is not None:
            self._copies.cleanup()

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
            self._filter(lines, "")
        return searched or filtered
