"""The Compiles screen: a tree of call stacks and compiles, with the details of the selected one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from dynadiag.recording.records import Compile
from tui.compile_tree import CompileTree
from tui.key_bindings import footer_key
from tui.location import Location
from tui.styled_text import Line, line
from tui.timeline import TimelineScreen
from tui.views.listing import ListingView
from tui.widgets.styled_lines import StyledLines
from tui.widgets.tree import Branch, Tree


class CompilesView(ListingView):
    """The tree on the left, the details on the right."""

    DETAIL: ClassVar[str] = "compile"
    BINDINGS: ClassVar[list[BindingType]] = [
        footer_key("v", "timeline", "time line", "compiles.timeline", "show the time line of the run"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._tree_data: CompileTree | None = None
        self._pending_compile: str | None = None

    def compose(self) -> ComposeResult:
        yield Tree(id="compiles-tree")
        yield StyledLines(id="compiles-detail", classes="detail", wrap=True)

    @property
    def lines(self) -> Tree:
        return self.query_one(Tree)

    @property
    def key(self) -> str | None:
        branch = self.lines.branch
        return branch.key if branch is not None else None

    def load(self) -> None:
        self.fetch("rows", self._read, self._show_tree)

    def _read(self) -> tuple[CompileTree, list[Branch]]:
        made = CompileTree(self.session.explanation(), self.session.recording)
        return made, made.branches()

    def _show_tree(self, found: tuple[CompileTree, list[Branch]]) -> None:
        is_first = self._tree_data is None
        self._tree_data, roots = found
        self.lines.show(roots)
        number = len(self._tree_data.explanation.compiles)
        self.lines.border_subtitle = f"{number:,}"
        self.refresh_bindings()
        if not number:
            self.details.show_note(line((self.nothing(""), "dim")))
        elif self._pending_compile is not None:
            self._go_to(self._pending_compile)
        elif is_first:
            failed = (item for item in self._compiles if item.outcome == "error")
            self._go_to(next(failed, self._compiles[0]).compile_id)
        else:
            self._read_detail()

    def go_to(self, place: Location) -> None:
        if place.compile_id is not None:
            self._pending_compile = place.compile_id
            self._go_to(place.compile_id)

    def _go_to(self, compile_id: str) -> None:
        found = [item.index for item in self._compiles if item.compile_id == compile_id]
        if found:
            self._pending_compile = None
            self.lines.go_to_key(f"compile/{found[-1]}")

    @property
    def _compiles(self) -> tuple[Compile, ...]:
        return self._tree_data.explanation.compiles if self._tree_data else ()

    def location(self) -> Location:
        item = self._item_of(self.key or "")
        return Location(self.NAME, compile_id=item.compile_id if item else None)

    def _item_of(self, key: str) -> Compile | None:
        kind, _, rest = key.partition("/")
        return self._compiles[int(rest.partition("/")[0])] if kind == "compile" else None

    def offers(self, action: str) -> bool:
        """Whether there are compiles, each of which has a time line."""
        return super().offers(action) and (action != "timeline" or bool(self._compiles))

    def action_timeline(self) -> None:
        browser, start = self.browser, self.location().compile_id
        browser.push_screen(TimelineScreen(self.session, browser.rank, browser.paths, start), browser.go_to)

    def detail(self, key: int | str) -> Sequence[Line]:
        item, tree = self._item_of(str(key)), self._tree_data
        if tree is None:
            return []
        return tree.call_lines(str(key)) if item is None else tree.compile_lines(item)

    def target_of(self, key: int | str) -> Location | None:  # noqa: ARG002 - the branch under the cursor has it
        branch = self.lines.branch
        return branch.target if branch is not None else None
