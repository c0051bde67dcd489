"""What is said about the linked panes."""

from __future__ import annotations

from tui.links import Place
from tui.roles import one_line
from tui.widgets.code import CodePane, is_exact

__all__ = ["EMPTY", "TITLES", "UNKNOWN", "said_of", "where_of"]

UNKNOWN = "this compile is not in the recording"

# Of a pane that has nothing to show.
TITLES = {"dynamo": "Dynamo's graph", "later": "later graphs", "kernel": "generated code"}

EMPTY = {
    "source": "no source: torch did not say which file this is",
    "dynamo": "Dynamo made no graph in this compile",
    "later": "no graph was recorded after Dynamo's",
    "kernel": "no code was generated in this compile",
    "stage": "no stage was made of a kernel",
}


def said_of(pane: CodePane, places: frozenset[Place], lit: int, *, here: bool) -> str:
    """What stands in the title of a pane: where the cursor is, or how many lines belong to it."""
    if here and pane.count:
        return f"{pane.cursor + 1:,}/{pane.count:,}"
    if not pane.count:
        return ""
    if not places or not lit:
        return "no mapping"
    guess = pane.links.at(places)[0] in pane.links.guessed
    return f"{lit} line{'s' if lit != 1 else ''}{', inferred' if guess else ''}"


def where_of(pane: CodePane, places: frozenset[Place]) -> str:
    """The lines of the user's that the cursor's line belongs to."""
    if not pane.count:
        return ""
    if not places:
        return "no mapping for this line"
    own = sorted(place for place in places if not is_exact(place))
    return ", ".join(f"{one_line(file.rpartition('/')[2])}:{line}" for file, line in own[:4])
