"""The pieces that every section of a text report is built of: facts, helps, wrapped notes."""

from __future__ import annotations

from dynadiag.render.clean import clean_line
from dynadiag.render.paths import fit_path
from dynadiag.render.style import Style
from dynadiag.render.wrap import truncate_end, wrap_indented

__all__ = ["GUTTER", "fact_lines", "help_lines", "labelled_lines", "lead_of", "location_line"]

_LISTING = "    "  # how torch sets a listing of code off from its sentences
_LONGEST = 2000  # characters of a line of a listing: more than any terminal shows
_MOST_LINES = 12  # of torch's own text on one fact
GUTTER = 4  # columns for line numbers, so that the bars of all diagnostics stand in one line up to line 9,999


def location_line(place: str, style: Style) -> str:
    """The line that names a place, after the head of a diagnostic."""
    return f"{' ' * GUTTER}{style.paint('-->', 'gutter')} {fit_path(place, style.columns - GUTTER - 4)}"


def fact_lines(name: str, text: str, style: Style) -> list[str]:
    """``= name: text`` below the bar of the source, each line of the text wrapped by itself.

    Lines that stand far in are a listing: each stays one line, cut at its end.
    """
    lead = lead_of(name)
    head, *tail = [line for line in text.splitlines() if line.strip()] or [""]
    first, *rest = wrap_indented(lead, head, style.columns)
    for more in tail[:_MOST_LINES]:
        if more.startswith(_LISTING):
            rest.append(" " * len(lead) + truncate_end(f"  {clean_line(more[:_LONGEST])}", style.columns - len(lead)))
        else:
            rest += wrap_indented(" " * len(lead), more, style.columns)
    return [style.paint(first[: GUTTER + 2], "gutter") + first[GUTTER + 2 :], *rest]


def lead_of(name: str) -> str:
    """What stands before the text of a fact."""
    return f"{' ' * GUTTER} = {name}: "


def help_lines(text: str, style: Style) -> list[str]:
    """``help: text``, wrapped."""
    return labelled_lines("help", "help", text, style)


def labelled_lines(label: str, role: str, text: str, style: Style) -> list[str]:
    """A text after a coloured label and a colon, wrapped under itself."""
    first, *rest = wrap_indented(f"{label}: ", text, style.columns)
    return [style.paint(f"{label}:", role) + first[len(label) + 1 :], *rest]
