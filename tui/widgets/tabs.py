"""The tabs: the names of all screens in one line, each with its key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from tui.colors import palette_of, role_style


@dataclass(frozen=True, slots=True)
class Tab:
    """The tab of a screen: its name, its key, its titles, the longest first, and the number of its records."""

    name: str
    key: str
    titles: tuple[str, str, str]
    count: int | None = None


class Tabs(Widget):
    """Shows long titles if they fit, otherwise shorter ones."""

    current = reactive("")
    tabs: reactive[Sequence[Tab]] = reactive(())

    class Clicked(Message):
        """The user clicked on a tab."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def render_line(self, _y: int) -> Strip:
        palette = palette_of(self.app.theme)
        key, here = role_style("key", palette), Style(bold=True, reverse=True)
        segments = []
        for tab, text in zip(self.tabs, self._texts(), strict=True):
            first = len(text) - len(text.lstrip()) + 1
            own = here if tab.name == self.current else Style.null()
            segments += [Segment(text[:first], key + own), Segment(text[first:], own)]
        return Strip(segments).crop_extend(0, self.size.width, None).apply_style(self.rich_style)

    def _texts(self) -> list[str]:
        """Return the text of each tab, as long as fits."""
        counts = [f" {tab.count:,}" if tab.count else "" for tab in self.tabs]
        numbered = [
            [f" {tab.key} {tab.titles[size]}{number} " for tab, number in zip(self.tabs, counts, strict=True)]
            for size in (0, 1)
        ]
        spaced = [f" {tab.key} {tab.titles[1]} " for tab in self.tabs]
        dense = [
            [f"{' ' if place else ''}{tab.key}{tab.titles[size]}" for place, tab in enumerate(self.tabs)]
            for size in (1, 2)
        ]
        bare = [f" {tab.key} {tab.titles[0] if tab.name == self.current else ''}" for tab in self.tabs]
        layouts = (*numbered, spaced, *dense)
        return next((texts for texts in layouts if sum(map(cell_len, texts)) <= self.size.width), bare)

    def on_click(self, event: events.Click) -> None:
        place = 0
        for tab, text in zip(self.tabs, self._texts(), strict=True):
            place += cell_len(text)
            if event.x < place:
                self.post_message(self.Clicked(tab.name))
                return
