"""The titles and messages of the code panes."""

from __future__ import annotations

from tui.links import Place
from tui.roles import one_line
from tui.widgets.code import CodePane, is_exact

__all__ = ["EMPTY", "TITLES", "UNKNOWN", "said_of", "where_of"]

UNKNOWN = "this compile is not in the recording"

# The titles of panes without a document.
TITLES = {"dynamo": "Dynamo's graph", "later": "later graphs", "kernel": "generated code"}

EMPTY = {
    "source": "no source: torch did not report a file",
    "dynamo": "Dynamo made no graph in this compile",
    "later": "no later graph was recorded",
    "kernel": "no code was generated in this compile",
    "stage": "no kernel was compiled here",
}


def said_of(pane: CodePane, places: frozenset[Place], lit: int, *, here: bool) -> str:
    """Return what the title of a pane says: the cursor's line, or the number of linked lines."""
    if here and pane.count:
        return f"{pane.cursor + 1:,}/{pane.count:,}"
    if not pane.count:
        return ""
    if not places or not lit:
        return "no mapping"
    guess = pane.links.at(places)[0] in pane.links.guessed
    return f"{lit} line{'s' if lit != 1 else ''}{', inferred' if guess else ''}"


def where_of(pane: CodePane, places: frozenset[Place]) -> str:
    """Return the source lines that the cursor's line is linked to."""
    if not pane.count:
        return ""
    if not places:
        return "no mapping for this line"
    own = sorted(place for place in places if not is_exact(place))
    return ", ".join(f"{one_line(file.rpartition('/')[2])}:{line}" for file, line in own[:4])
