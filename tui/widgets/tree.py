"""A tree. Branches are created when they are opened and drawn when they are on the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from textual.binding import BindingType

from dynadiag.render.wrap import truncate_middle
from tui.colors import role_style
from tui.key_bindings import hidden_key
from tui.location import Location
from tui.styled_text import Fragment
from tui.widgets.lines import FilterableLines, Lines

_MIN_NAME = 8  # columns


@dataclass(frozen=True, slots=True)
class Branch:
    """A line of the tree. ``key`` is unique in the tree, and ``children`` is called when the branch is opened."""

    key: str
    fragments: tuple[Fragment, ...]
    target: Location | None = None
    children: Callable[[], Sequence[Branch]] | None = None
    expanded: bool = False  # initially
    is_name: bool = False  # the last fragment is a name: if it is too long, it keeps both ends


@dataclass(frozen=True, slots=True)
class _VisibleBranch:
    branch: Branch
    depth: int


class Tree(FilterableLines):
    """Shows the open branches. ``l`` opens one, ``h`` closes it or goes up, enter sends `Chosen`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        hidden_key("l,right,plus", "open", "open the branch", "tree.open"),
        hidden_key("h,left,minus", "close", "close the branch, or go up", "tree.close"),
        hidden_key("o", "toggle_branch", "open or close", "tree.toggle"),
        hidden_key("E", "everything", "open every branch, or close them", "tree.everything"),
    ]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._roots: Sequence[Branch] = ()
        self._toggled: set[str] = set()  # keys of branches that the user opened or closed
        self._visible: list[_VisibleBranch] = []
        self._whole_count = 0  # branches that would be visible without the filter

    def show(self, roots: Sequence[Branch]) -> None:
        """Show another tree. Open branches stay open, and the cursor stays on its branch."""
        self._roots = roots
        self.apply_filter()

    @property
    def branch(self) -> Branch | None:
        """The branch under the cursor, or ``None``."""
        return self._visible[self.cursor].branch if 0 <= self.cursor < len(self._visible) else None

    def go_to_key(self, key: str, closed: Set[str] = frozenset()) -> bool:
        """Put the cursor on a branch. Return whether the branch exists.

        A filter that hides it is cleared, and parents that the user closed are opened, and those that began ``closed``.
        """
        index = self._index_of(key)
        if index is None and closed:
            self._toggled |= closed
            self.apply_filter()
            index = self._index_of(key)
        if index is None and (self.filter or self._toggled):
            self._toggled -= {branch.key for branch in _path_to(key, self._roots)}
            self.set_filter("")
            index = self._index_of(key)
        if index is not None:
            self.move_to(index)
        return index is not None

    def _index_of(self, key: str) -> int | None:
        return next((place for place, shown in enumerate(self._visible) if shown.branch.key == key), None)

    @property
    def whole_count(self) -> int:
        return self._whole_count

    def apply_filter(self) -> None:
        """Show the open branches, of which a filter leaves those that contain it, with their parents."""
        key = self.branch.key if self.branch else None
        self._visible = list(self._walk(self._roots, 0))
        self._whole_count = len(self._visible)
        if self.filter:
            self._visible = _matching(self._visible, self.filter.lower())
        width = max(
            (2 * s.depth + 2 + sum(cell_len(t) for t, _ in s.branch.fragments) for s in self._visible), default=0
        )
        place = next((i for i, shown in enumerate(self._visible) if shown.branch.key == key), None)
        if place is not None:
            self.set_reactive(Lines.cursor, place)
        self.resize_content(width)

    def _walk(self, branches: Sequence[Branch], depth: int) -> Iterator[_VisibleBranch]:
        for branch in branches:
            yield _VisibleBranch(branch, depth)
            if branch.children is not None and self._is_open(branch):
                yield from self._walk(branch.children(), depth + 1)

    def _is_open(self, branch: Branch) -> bool:
        return branch.expanded != (branch.key in self._toggled)

    def _set(self, branch: Branch, is_open: bool) -> None:
        if branch.children is not None and self._is_open(branch) != is_open:
            self._toggled ^= {branch.key}
            self.apply_filter()

    def action_open(self) -> None:
        """Open the branch, or move down if it is open."""
        if (branch := self.branch) is not None:
            if branch.children is not None and not self._is_open(branch):
                self._set(branch, True)
            else:
                self.action_move(1)

    def action_close(self) -> None:
        """Close the branch, or move to its parent."""
        branch = self.branch
        if branch is not None and branch.children is not None and self._is_open(branch):
            self._set(branch, False)
            return
        if branch is None:
            return
        depth = self._visible[self.cursor].depth
        above = next((i for i in range(self.cursor, -1, -1) if self._visible[i].depth < depth), None)
        if above is not None:
            self.cursor = above

    def action_toggle_branch(self) -> None:
        if (branch := self.branch) is not None:
            self._set(branch, not self._is_open(branch))

    def action_everything(self) -> None:
        """Open all visible branches, or close them where all are open."""
        branches = [shown.branch for shown in self._visible if shown.branch.children is not None]
        is_open = all(map(self._is_open, branches))
        for branch in branches:
            if self._is_open(branch) == is_open:
                self._toggled ^= {branch.key}
        self.apply_filter()

    def clicked(self, index: int, column: int) -> None:
        depth = self._visible[index].depth
        if 2 * depth <= column + int(self.scroll_x) < 2 * depth + 2:
            self.action_toggle_branch()

    @property
    def count(self) -> int:
        return len(self._visible)

    def text_of(self, index: int) -> str:
        return "".join(text for text, _ in self._visible[index].branch.fragments)

    def draw_line(self, index: int) -> list[Segment]:
        shown, palette = self._visible[index], self.palette
        branch = shown.branch
        mark = "  " if branch.children is None else "▾ " if self._is_open(branch) else "▸ "
        head = Segment("  " * shown.depth + mark, role_style("gutter", palette))
        parts = list(branch.fragments)
        if branch.is_name:
            *before, (name, role) = parts
            taken = cell_len(head.text) + sum(cell_len(text) for text, _ in before)
            parts[-1] = truncate_middle(name, max(self._line_width - taken, _MIN_NAME)), role
        return [head, *(Segment(text, role_style(role, palette)) for text, role in parts)]


def _path_to(key: str, branches: Sequence[Branch]) -> tuple[Branch, ...]:
    """Return the parents of a branch, outermost first. Only initially open branches are searched."""
    for branch in branches:
        if branch.expanded and branch.children is not None:
            below = branch.children()
            if any(one.key == key for one in below):
                return (branch,)
            if way := _path_to(key, below):
                return (branch, *way)
    return ()


def _matching(shown: list[_VisibleBranch], text: str) -> list[_VisibleBranch]:
    """Return the branches that contain a text, with their parents."""
    kept: dict[int, _VisibleBranch] = {}
    above: list[_VisibleBranch] = []
    for item in shown:
        while above and above[-1].depth >= item.depth:
            above.pop()
        if any(text in part.lower() for part, _ in item.branch.fragments):
            kept.update((id(one), one) for one in (*above, item))
        above.append(item)
    return list(kept.values())
