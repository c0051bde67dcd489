"""The command palette. It lists every described action with its keys."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from textual.app import App
from textual.binding import Binding
from textual.command import Command, CommandList, CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.dom import DOMNode

from tui.bookmarks import BookmarkList
from tui.command_screen import CommandScreen
from tui.dialog import ClosesOnce, Confirm
from tui.diff_screen import DiffScreen
from tui.graph_screen import GraphScreen
from tui.help import HelpScreen, key_label
from tui.picker import Picker
from tui.timeline import TimelineScreen
from tui.value_screen import ValueScreen
from tui.views import RANKS, SCREENS
from tui.widgets.code_pane import CodePane
from tui.widgets.lines import FilterableLines, Lines
from tui.widgets.prompt import Prompt
from tui.widgets.table import Table
from tui.widgets.tree import Tree

if TYPE_CHECKING:
    from tui.app import Browser


RunAction = Callable[[], Awaitable[object]]

_CURSOR_MOVES = ("down", "up", "half-down", "half-up", "page-down", "page-up", "first", "last", "left", "right")


def described_bindings(node: DOMNode) -> Iterator[Binding]:
    """Yield our described bindings of a node, first those of its class, then those of its base classes."""
    for kind in type(node).__mro__:
        for binding in kind.__dict__.get("BINDINGS", ()):
            if isinstance(binding, Binding) and binding.id and binding.description:
                yield binding


def all_binding_ids(app: type[App[Any]]) -> set[str]:
    """Return the id of every action that a user may give other keys: of this application, its screens and widgets."""
    kinds: list[type] = [app, Lines, FilterableLines, Table, Tree, CodePane, Prompt]
    kinds += [HelpScreen, Confirm, Picker, BookmarkList, CommandScreen, DiffScreen, GraphScreen]
    kinds += [TimelineScreen, ValueScreen]
    kinds += [base for one in (*SCREENS, RANKS) for base in one.view_class().__mro__]
    found = (binding for kind in kinds for binding in kind.__dict__.get("BINDINGS", ()))
    return {binding.id for binding in found if isinstance(binding, Binding) and binding.id}


class ActionProvider(Provider):
    """The actions of the focused widget, of its screen, of the application, then of the other screens."""

    async def discover(self) -> Hits:
        """Yield every action before the user types, except cursor movement."""
        for title, name, run in self._actions():
            if name.removeprefix("lines.") not in _CURSOR_MOVES:
                yield DiscoveryHit(title, run, help=name)

    async def search(self, query: str) -> Hits:
        """Yield the actions whose title matches the query."""
        matcher = self.matcher(query)
        for title, name, run in self._actions():
            score = matcher.match(title)
            if score > 0:
                yield Hit(score, matcher.highlight(title), run, help=name)

    def _actions(self) -> Iterator[tuple[str, str, RunAction]]:
        """Yield the title, the id and the callback of each action."""
        seen: set[str] = set()
        chosen = cast("Browser", self.app).chosen_keys
        node: DOMNode | None = self.focused or cast("Browser", self.app).current
        while node is not None:
            for binding in described_bindings(node):
                if binding.id and binding.id not in seen:
                    seen.add(binding.id)
                    yield _title(binding, chosen), binding.id, partial(self.app.run_action, binding.action, node)
            node = node.parent
        yield from self._other_screens()

    def _other_screens(self) -> Iterator[tuple[str, str, RunAction]]:
        """Yield the actions of screens that are not shown. Running one switches to its screen first."""
        browser = cast("Browser", self.app)
        for screen in SCREENS:
            if screen.name != browser.current.id:
                for binding in screen.view_class().__dict__.get("BINDINGS", ()):
                    if isinstance(binding, Binding) and binding.id:
                        run = partial(self._run_on_screen, screen.name, binding.action)
                        yield f"{screen.title}: {_title(binding, browser.chosen_keys)}", binding.id, run

    async def _run_on_screen(self, screen: str, action: str) -> None:
        browser = cast("Browser", self.app)
        await browser.action_view(screen)
        await browser.run_action(action, browser.current)


class Palette(CommandPalette, ClosesOnce[None]):
    """Textual's palette, which closes once.

    Its page keys raise `KeyError` where the terminal is too small for its list, and what it finds while it is closed
    raises `NoMatches`.
    """

    def _refresh_command_list(self, command_list: CommandList, commands: list[Command], clear_current: bool) -> None:
        if self.query(CommandList):  # it goes before the dialog does
            super()._refresh_command_list(command_list, commands, clear_current)

    def _action_command_list(self, action: str) -> None:
        if self.query_one(CommandList).scrollable_content_region.height:
            super()._action_command_list(action)


def _title(binding: Binding, chosen: Mapping[str, str]) -> str:
    return f"{binding.tooltip or binding.description}  ({key_label(binding, chosen)})"
