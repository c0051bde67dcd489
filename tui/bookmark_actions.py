"""Actions that keep a place: bookmarks with notes, and their list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynadiag.errors import DynadiagError
from tui.location import Location
from tui.screens_app import ScreensApp

if TYPE_CHECKING:
    from tui.bookmarks import Bookmark


_MAX_MARK_CHARS = 200  # characters of a line that a bookmark keeps


class BookmarkActionsApp(ScreensApp):
    """Makes bookmarks, lists them and goes to one."""

    async def action_mark(self) -> None:
        """Ask for a note, and keep it with the cursor's line as a bookmark."""
        lines, place = self.focused_lines, self.location
        if self.folder is None or lines is None:
            self.notify("no line to mark" if lines is None else "there is no folder for bookmarks", severity="warning")
            return
        text = lines.text_of(lines.cursor).strip()[:_MAX_MARK_CHARS] if lines.count else ""
        await (await self.prompt()).ask("note (may be empty): ", "", lambda note: self._mark(place, text, note))

    def _mark(self, place: Location, text: str, note: str) -> None:
        from tui.bookmarks import Bookmark

        try:
            marks = self._marks()
        except DynadiagError as error:
            self.report_problem(f"the bookmark is not kept: {error}")
        else:
            self._write_marks([*marks, Bookmark(place, text, note)])

    def _marks(self) -> list[Bookmark]:
        from tui.bookmarks import bookmark_path, read_bookmarks

        return read_bookmarks(bookmark_path(self.folder, self.session.run)) if self.folder else []

    def _write_marks(self, marks: list[Bookmark]) -> None:
        from tui.bookmarks import bookmark_path, write_bookmarks

        if self.folder is not None:
            path = bookmark_path(self.folder, self.session.run)
            try:
                write_bookmarks(path, marks)
            except (OSError, DynadiagError) as error:
                self.report_problem(f"the bookmarks are not kept: {error}")
            else:
                self.notify(f"bookmarks: {len(marks):,}")

    def action_marks(self) -> None:
        """List the bookmarks."""
        from tui.bookmarks import BookmarkList

        if marks := self._marks():
            self.push_screen(BookmarkList(marks, self._write_marks), self._go_to_mark)
        else:
            self.notify("there is no bookmark yet: m makes one")

    def _go_to_mark(self, place: Location | None) -> None:
        if place is not None:
            self.go_to(place)
