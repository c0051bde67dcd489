"""The command palette: every action that has a description, under it, with its keys."""

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

__all__ = ["Actions", "bindings_of"]

_MOVING = ("down", "up", "half-down", "half-up", "page-down", "page-up", "first", "last", "left", "right")


def bindings_of(node: DOMNode) -> Iterator[Binding]:
    """The bindings of ours that a node has, its class's first, then those of the classes above."""
    for kind in type(node).__mro__:
        for binding in kind.__dict__.get("BINDINGS", ()):
            if isinstance(binding, Binding) and binding.id and binding.description:
                yield binding


class Actions(Provider):
    """The actions of the focused widget, of its screen and of the app."""

    async def discover(self) -> Hits:
        """All but the moves of the cursor, which nobody looks for here."""
        for title, binding, node in self._actions():
            if (binding.id or "").removeprefix("lines.") not in _MOVING:
                yield DiscoveryHit(title, partial(self._run, binding, node), help=binding.id)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for title, binding, node in self._actions():
            score = matcher.match(title)
            if score > 0:
                yield Hit(score, matcher.highlight(title), partial(self._run, binding, node), help=binding.id)

    def _actions(self) -> Iterator[tuple[str, Binding, DOMNode]]:
        seen: set[str] = set()
        node: DOMNode | None = self.focused or cast("Browser", self.app).current
        while node is not None:
            for binding in bindings_of(node):
                if binding.id and binding.id not in seen:
                    seen.add(binding.id)
                    yield f"{binding.description}  ({key_of(binding)})", binding, node
            node = node.parent

    async def _run(self, binding: Binding, node: DOMNode) -> None:
        await self.app.run_action(binding.action, node)
