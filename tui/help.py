"""The help screen: words of the cursor's line, then keys, generated from the bindings."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.keys import format_key

from tui.dialog import Dialog
from tui.key_bindings import footer_key
from tui.styled_text import Line, line, one_line
from tui.widgets.code_pane import CodePane
from tui.widgets.lines import FilterableLines, Lines
from tui.widgets.styled_lines import StyledLines
from tui.widgets.table import Table
from tui.widgets.tree import Tree

_KEY_WIDTH = 20  # columns for the keys
_MIN_TEXT_WIDTH = 20  # minimum columns for a description


def key_label(binding: Binding, chosen: Mapping[str, str]) -> str:
    """Return the keys of a binding as users write them; ``chosen`` are their own by the id of the binding."""
    keys = chosen.get(binding.id or "", binding.key)
    return " ".join(format_key(key).replace("ctrl+", "^") for key in keys.split(","))


def word_lines(words: Sequence[tuple[str, str]], columns: int) -> list[Line]:
    """Return words with what each means, wrapped to `columns`."""
    made = [line(("On this line", "title"))]
    for word, meaning in words:
        made.append(line((f"  {one_line(word)}", "key")))
        made += [line(f"    {text}") for text in textwrap.wrap(one_line(meaning), max(columns - 4, _MIN_TEXT_WIDTH))]
    return [*made, Line()] if words else []


def _binding_lines(item: Binding, columns: int, chosen: Mapping[str, str]) -> list[Line]:
    keys, room = f"  {key_label(item, chosen):<18}", max(columns - _KEY_WIDTH, _MIN_TEXT_WIDTH)
    first, *rest = textwrap.wrap(item.tooltip or item.description, room) or [""]
    return [line((keys, "key"), first), *(line(" " * len(keys), text) for text in rest)]


class HelpScreen(Dialog[None]):
    """Lists the keys of one screen, then the keys that work on every screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        footer_key("escape,q,?", "dismiss", "close", "help.close"),
    ]

    def __init__(
        self,
        sections: Sequence[tuple[str, Iterable[BindingType]]],
        chosen: Mapping[str, str],
        words: Sequence[tuple[str, str]] = (),
    ) -> None:
        """``words`` are those of the cursor's line that can be explained, each with what it means."""
        super().__init__()
        self._chosen, self._words = chosen, words
        self._sections = [
            *sections,
            ("In a list or a text", Lines.BINDINGS),
            ("In a table", [*FilterableLines.BINDINGS, *Table.BINDINGS]),
            ("In a tree", Tree.BINDINGS),
            ("In code", CodePane.BINDINGS),
        ]

    def compose(self) -> ComposeResult:
        yield StyledLines()

    def on_resize(self) -> None:
        lines = self.query_one(StyledLines)
        made: list[Line] = []
        for title, bindings in self._sections:
            own = [item for item in bindings if isinstance(item, Binding) and item.description]
            if own:
                described = [each for item in own for each in _binding_lines(item, lines.columns, self._chosen)]
                made += [line((title, "title")), *described, Line()]
        lines.show([*word_lines(self._words, lines.columns), *made[:-1]], keep=True)

    def on_mount(self) -> None:
        lines = self.query_one(StyledLines)
        lines.border_title = "words and keys" if self._words else "keys"
        lines.border_subtitle = "escape closes it"
