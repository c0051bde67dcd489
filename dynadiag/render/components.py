"""What every section of a text report is built of: places, facts, help, and texts with a label."""

from __future__ import annotations

from dynadiag.render.clean import clean_line
from dynadiag.render.paths import fit_path
from dynadiag.render.style import Style
from dynadiag.render.wrap import truncate_end, wrap_indented

__all__ = ["GUTTER", "fact_lines", "fact_prefix", "help_lines", "labelled_lines", "location_line"]

_LISTING = "    "  # how torch sets a listing of code off from its sentences
_MAX_LINE = 2000  # characters of a line of a listing: more than any terminal shows
_MAX_LINES = 12  # lines after the first of one fact; torch's own text may be long
GUTTER = 4  # columns for line numbers, so that the bars of all diagnostics stand in one line up to line 9,999


def location_line(place: str, style: Style) -> str:
    """The line that names a place, after the head of a diagnostic."""
    return f"{' ' * GUTTER}{style.paint('-->', 'gutter')} {fit_path(place, style.columns - GUTTER - 4)}"


def fact_lines(name: str, text: str, style: Style) -> list[str]:
    """``= name: text`` below the bar of the source, each line of the text wrapped by itself.

    Indented lines are a listing of code: each stays one line, cut at its end. Of a long text the first lines are shown,
    and an ellipsis for the rest.
    """
    prefix = fact_prefix(name)
    indent = " " * len(prefix)
    head, *tail = [line for line in text.splitlines() if line.strip()] or [""]
    first, *rest = wrap_indented(prefix, head, style.columns)
    for line in tail[:_MAX_LINES]:
        if line.startswith(_LISTING):
            rest.append(indent + truncate_end(f"  {clean_line(line[:_MAX_LINE])}", style.columns - len(indent)))
        else:
            rest += wrap_indented(indent, line, style.columns)
    if len(tail) > _MAX_LINES:
        rest.append(f"{indent}...")
    return [style.paint(first[: GUTTER + 2], "gutter") + first[GUTTER + 2 :], *rest]


def fact_prefix(name: str) -> str:
    """The text before that of a fact."""
    return f"{' ' * GUTTER} = {name}: "


def help_lines(text: str, style: Style) -> list[str]:
    """``help: text``, wrapped."""
    return labelled_lines("help", "help", text, style)


def labelled_lines(label: str, role: str, text: str, style: Style) -> list[str]:
    """A text after a coloured label and a colon, wrapped under itself."""
    first, *rest = wrap_indented(f"{label}: ", text, style.columns)
    return [style.paint(f"{label}:", role) + first[len(label) + 1 :], *rest]
