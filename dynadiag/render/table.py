"""Tables of figures with a name on the left; and tables of many columns that fit a terminal."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from dynadiag.render.clean import clean_line
from dynadiag.render.printer import Printer
from dynadiag.render.wrap import truncate_middle, width

_GAP = 2  # columns between columns
_MIN_CELL = 16  # columns of a cell that is cut
_INDENT = "    "  # before the further lines of a row
_MAX_NAME = 30  # columns

Column = tuple[str, Sequence[str]]


def table(names: Sequence[str], columns: Sequence[Column], printer: Printer, max_name: int = _MAX_NAME) -> list[str]:
    """A line of titles, then a line for each name with its cell of each column. Names are cleaned."""
    shown = [truncate_middle(clean_line(name), max_name) for name in names]
    first = max(map(width, shown))
    cells_of = [[title, *cells] for title, cells in columns]
    widths = [max(map(width, column)) for column in cells_of]
    body = [
        "".join(" " * (_GAP + room - width(cell)) + cell for cell, room in zip(line, widths, strict=True))
        for line in zip(*cells_of, strict=True)
    ]
    pairs = zip(shown, body[1:], strict=True)
    return [
        printer.paint(" " * first + body[0], "dim"),
        *((name + " " * (first - width(name)) + cells).rstrip() for name, cells in pairs),
    ]


def fitted_table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    columns: int | None,
    *,
    numeric: Collection[str],
    shorten: Mapping[str, Callable[[str, int], str]],
) -> list[str]:
    """The heads and the rows in lines of at most `columns`; ``None`` is no limit.

    What does not fit is cut in the columns that `shorten` has a function for. Where that is not enough a row takes
    several lines, those columns last.
    """
    order = list(range(len(heads)))
    widths = [max(width(row[place]) for row in [heads, *rows]) for place in order]
    groups = [order]
    if columns is not None:
        flexible = [head in shorten for head in heads]
        # The widths, the flexible ones made smaller, the widest first, until all fit or none can be smaller.
        found = list(widths)
        for _ in range(max(_total(widths) - columns, 0)):
            widest = max((at for at, bends in enumerate(flexible) if bends), key=found.__getitem__, default=None)
            if widest is None or found[widest] <= _MIN_CELL:
                break
            found[widest] -= 1
        widths = found
        if _total(widths) > columns:
            groups = _groups(sorted(order, key=flexible.__getitem__), widths, columns)
        rows = [_shortened(row, heads, widths, shorten) for row in rows]
    limit = _total(widths) if columns is None else columns
    right = [head in numeric for head in heads]
    return [truncate_middle(line, limit) for row in [heads, *rows] for line in _row_lines(row, widths, groups, right)]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _shortened(
    row: Sequence[str], heads: Sequence[str], widths: Sequence[int], shorten: Mapping[str, Callable[[str, int], str]]
) -> list[str]:
    return [
        shorten[head](cell, room) if head in shorten else cell
        for head, cell, room in zip(heads, row, widths, strict=True)
    ]


def _groups(order: Sequence[int], widths: Sequence[int], columns: int) -> list[list[int]]:
    """The columns of each line of a row: as many as fit."""
    groups: list[list[int]] = [[]]
    for place in order:
        lead = len(_INDENT) if len(groups) > 1 else 0
        if groups[-1] and lead + _total([widths[at] for at in [*groups[-1], place]]) > columns:
            groups.append([])
        groups[-1].append(place)
    return groups


def _row_lines(
    row: Sequence[str], widths: Sequence[int], groups: Sequence[Sequence[int]], right: Sequence[bool]
) -> list[str]:
    lines: list[str] = []
    for group in groups:
        gaps = {at: " " * (widths[at] - width(row[at])) for at in group}
        cells = [gaps[at] + row[at] if right[at] else row[at] + gaps[at] for at in group]
        lines.append(((_INDENT if lines else "") + (" " * _GAP).join(cells)).rstrip())
    return lines
