"""The titles and messages of the code panes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dynadiag.explanation.formatting import count
from dynadiag.recording.records import Compile
from tui.documents import DocumentRef
from tui.line_links import LineKey
from tui.styled_text import one_line
from tui.widgets.code_pane import CodePane, is_kernel_line

UNKNOWN_COMPILE = "this compile is not in the recording"

_SEVERAL, _MAX_COMPILES = 2, 4  # compiles of a line that are named

# The titles of panes without a document.
PANE_TITLES = {"dynamo": "Dynamo's graph", "later": "later graphs", "kernel": "generated code"}

EMPTY_PANE = {
    "source": "no source: torch did not report a file",
    "dynamo": "Dynamo made no graph in this compile",
    "later": "no later graph was recorded",
    "kernel": "no code was generated in this compile",
    "stage": "no kernel was compiled here",
}
MADE_BY_COMPILING = ("dynamo", "later", "kernel")  # the panes of a failed compile that say when it failed


def failure_text(item: Compile, made: Mapping[str, Sequence[DocumentRef]]) -> str:
    """Return when a compile failed, or the program ended in it, or that it left all of its function to Python.

    Empty if none of these. `made` are the documents that it left.
    """
    if item.outcome == "skipped" and not made["dynamo"]:
        return f"left all of {one_line(item.function)} to Python"
    if item.outcome != "error":
        return ""
    when = "after code was generated" if made["kernel"] else "before code was generated"
    when = when if made["dynamo"] else "before Dynamo had a graph"
    return f"failed {when}" if item.error else f"did not end: the recording ends {when}"


def pane_status(pane: CodePane, places: frozenset[LineKey], lit: int, *, here: bool) -> str:
    """Return what the title of a pane says: the cursor's line, or the number of linked lines."""
    if here and pane.count:
        return f"line {pane.cursor + 1:,} of {pane.count:,}"
    if not pane.count:
        return ""
    if not places or not lit:
        return "no mapping"
    own = pane.links.lines_of(places)
    if not own:
        return f"{count(lit, 'line')} made by this call"
    return f"{count(lit, 'linked line')}{', inferred' if own[0] in pane.links.inferred else ''}"


def compiles_text(ids: Sequence[str]) -> str:
    """Return in which compiles something was made of a line, if there are several."""
    if len(ids) < _SEVERAL:
        return ""
    more = f" and {len(ids) - _MAX_COMPILES:,} more" if len(ids) > _MAX_COMPILES else ""
    return f"compiled in {', '.join(map(one_line, ids[:_MAX_COMPILES]))}{more} (J: next)"


def user_lines_text(pane: CodePane, places: frozenset[LineKey]) -> str:
    """Return the source lines that the cursor's line is linked to."""
    if not pane.count:
        return ""
    if not places:
        return "no mapping for this line"
    own = sorted(place for place in places if not is_kernel_line(place))
    return ", ".join(f"{one_line(file.rpartition('/')[2])}:{line}" for file, line in own[:4])
