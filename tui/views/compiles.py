"""The Compiles screen: a tree of call stacks and compiles, with the details of the selected one."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widget import Widget

from dynadiag.recording.records import Compile
from tui.compile_tree import CompileTree, call_lines, compile_branches, compile_lines
from tui.location import Location
from tui.styled_text import line, one_line
from tui.timeline import TimelineScreen
from tui.views.base import View
from tui.widgets.lines import Lines
from tui.widgets.styled_lines import StyledLines
from tui.widgets.tree import Branch, Tree


class CompilesView(View):
    """The tree on the left, the details on the right."""

    NAME: ClassVar[str] = "compiles"
    TITLE: ClassVar[str] = "Compiles"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "v",
            "timeline",
            "time line",
            id="compiles.timeline",
            tooltip="show the time line of the run, zoomed to this compile",
        ),
    ]

    def __init__(self) -> None:
        super().__init__(classes="listing")
        self._tree_data: CompileTree | None = None
        self._pending_compile: str | None = None

    def compose(self) -> ComposeResult:
        yield Tree(id="compiles-tree")
        yield StyledLines(id="compiles-detail", classes="detail", wrap=True)

    def on_mount(self) -> None:
        self.tree_.border_title = self.TITLE
        self.details.border_title = "compile"

    @property
    def tree_(self) -> Tree:
        return self.query_one(Tree)

    @property
    def details(self) -> StyledLines:
        return self.query_one(StyledLines)

    def first_focus(self) -> Widget:
        return self.tree_

    def load(self) -> None:
        self.fetch("forest", self._read, self._show)

    def _read(self) -> tuple[CompileTree, list[Branch]]:
        recording = self.session.recording
        made = CompileTree.build(self.session.explanation(), recording.graphs, recording.kernels, recording.payload)
        return made, compile_branches(made)

    def show_problem(self, reason: str) -> None:
        self.details.show_note(line((one_line(reason), "error")))

    def _show(self, found: tuple[CompileTree, list[Branch]]) -> None:
        is_first = self._tree_data is None
        self._tree_data, roots = found
        self.tree_.show(roots)
        number = len(self._tree_data.explanation.compiles)
        self.tree_.border_subtitle = f"{number:,}"
        self.refresh_bindings()
        if not number:
            self.details.show_note(line((self.nothing(""), "dim")))
        elif self._pending_compile is not None:
            self._go_to(self._pending_compile)
        elif is_first:
            failed = (item for item in self._compiles if item.outcome == "error")
            self._go_to(next(failed, self._compiles[0]).compile_id)
        else:
            self._describe()

    def go_to(self, place: Location) -> None:
        if place.compile_id is not None:
            self._pending_compile = place.compile_id
            if self._tree_data is not None:
                self._go_to(place.compile_id)

    def _go_to(self, compile_id: str) -> None:
        found = [item.index for item in self._compiles if item.compile_id == compile_id]
        if found:
            self._pending_compile = None
            self.tree_.go_to_key(f"compile/{found[-1]}")

    @property
    def _compiles(self) -> tuple[Compile, ...]:
        return self._tree_data.explanation.compiles if self._tree_data else ()

    def location(self) -> Location:
        item = self._item()
        return Location(self.NAME, compile_id=item.compile_id if item else None)

    def _item(self) -> Compile | None:
        branch = self.tree_.branch
        parts = branch.key.split("/") if branch else []
        return self._compiles[int(parts[1])] if parts[:1] == ["compile"] else None

    def cursor_moved(self, lines: Lines) -> None:
        if lines is self.tree_:
            self.debounce(self._describe)

    def offers(self, action: str) -> bool:
        """Whether there are compiles, each of which has a time line."""
        return super().offers(action) and (action != "timeline" or bool(self._compiles))

    def action_timeline(self) -> None:
        """Show the time line of the whole run, at the compile under the cursor."""
        item, browser = self._item(), self.browser
        start = item.compile_id if item is not None else None
        screen = TimelineScreen(self.session, browser.rank, browser.paths, start)
        browser.push_screen(screen, lambda place: browser.go_to(place) if place is not None else None)

    def _describe(self) -> None:
        item, made, branch = self._item(), self._tree_data, self.tree_.branch
        if made is None or branch is None:
            return
        if item is None:
            self.fetch("detail", lambda: call_lines(branch.key, made), self.details.show)
        else:
            self.fetch("detail", lambda: compile_lines(item, made), self.details.show)

    def line_chosen(self, lines: Lines) -> None:
        if lines is self.tree_:
            branch = self.tree_.branch
            target = branch.target if branch else None
        else:
            target = self.details.target
        if target is not None:
            self.browser.go_to(target)
