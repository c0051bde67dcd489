"""The footer: the keys of the focused widget.

Textual's footer creates a widget for each key at each change, a sixth of the time to the first screen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from rich.cells import cell_len
from rich.segment import Segment
from textual import events
from textual.binding import Binding
from textual.reactive import reactive
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from tui.colors import palette_of, role_style
from tui.widgets.prompt import Prompt

_ALWAYS = 3  # keys at the end that are always shown: help, all actions, quit
_PROMPT_KEYS = (("enter", "⏎", "done"), ("escape", "esc", "cancel"))


@runtime_checkable
class OffersKeys(Protocol):
    """A widget in which not all keys do something at all times. Pressed, such a key says why it does nothing."""

    def offers(self, action: str) -> bool:
        """Whether a key does something now."""
        ...


class Keys(Widget):
    """One line of keys. A click on a key presses it."""

    shown: reactive[tuple[tuple[str, str, str], ...]] = reactive(())  # key, displayed key, description

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def _changed(self, screen: Screen[object]) -> None:
        if screen is self.screen:
            asked = any(isinstance(node, Prompt) for node in (screen.focused.ancestors if screen.focused else ()))
            self.shown = _PROMPT_KEYS if asked else tuple(_shown_keys(screen, self))

    def _texts(self) -> list[tuple[str, str]]:
        """Return the texts of the keys. If they do not all fit, help and quit, which come last, are kept."""
        texts = [(f" {display} ", f"{what} ") for _, display, what in self.shown]
        over = sum(cell_len(text) for pair in texts for text in pair) - self.size.width
        for place in range(len(texts) - 1 - _ALWAYS, -1, -1):
            if over > 0:
                over -= sum(map(cell_len, texts[place]))
                texts[place] = ("", "")
        return texts

    def render_line(self, _y: int) -> Strip:
        key = role_style("key", palette_of(self.app.theme))
        segments = [part for display, what in self._texts() for part in (Segment(display, key), Segment(what))]
        return Strip(segments).crop_extend(0, self.size.width, None).apply_style(self.rich_style)

    def on_click(self, event: events.Click) -> None:
        place = 0
        for (key, _, _), (display, what) in zip(self.shown, self._texts(), strict=True):
            place += cell_len(display) + cell_len(what)
            if event.x < place:
                self.app.simulate_key(key)
                return


def _shown_keys(screen: Screen[object], footer: Widget) -> Iterator[tuple[str, str, str]]:
    """Yield the bindings to show, each action once, with its first key."""
    found: dict[str, Binding] = {}
    around = screen.focused.ancestors_with_self if screen.focused else []
    asked = [node for node in around if isinstance(node, OffersKeys)]
    for active in screen.active_bindings.values():
        offered = all(node.offers(active.binding.action) for node in asked)
        if active.binding.show and active.enabled and offered:
            found.setdefault(active.binding.action, active.binding)
    for binding in found.values():
        yield binding.key, footer.app.get_key_display(binding), binding.description
