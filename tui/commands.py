"""The command palette: every action that has a description, under it, with its key."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, cast

from textual.binding import Binding
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.dom import DOMNode

from tui.help import key_of

if TYPE_CHECKING:
    from tui.app import Browser

__all__ = ["Actions"]


class Actions(Provider):
    """The actions of the focused widget, of its screen and of the app."""

    async def discover(self) -> Hits:
        for title, binding, node in self._actions():
            yield DiscoveryHit(title, partial(self._run, binding, node), help=binding.action)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for title, binding, node in self._actions():
            score = matcher.match(title)
            if score > 0:
                yield Hit(score, matcher.highlight(title), partial(self._run, binding, node), help=binding.action)

    def _actions(self) -> Iterator[tuple[str, Binding, DOMNode]]:
        seen: set[str] = set()
        node: DOMNode | None = self.focused or cast("Browser", self.app).current
        while node is not None:
            for binding in node._bindings.key_to_bindings.values():
                for item in binding:
                    name = item.id or item.action
                    if item.description and name not in seen and "." in (item.id or ""):
                        seen.add(name)
                        yield f"{item.description}  ({key_of(item)})", item, node
            node = node.parent

    async def _run(self, binding: Binding, node: DOMNode) -> None:
        await self.app.run_action(binding.action, node)
