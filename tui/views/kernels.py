"""Kernels: a table to sort and filter, and the code of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tui.documents import kernel_regions, split
from tui.lexing import Highlighter
from tui.location import Location
from tui.roles import Line, line, one_line
from tui.views.listing import ListingView
from tui.widgets.table import Column, Row

__all__ = ["KernelsView"]

_SHOWN = 400  # lines of a kernel in the detail; enter shows the whole


class KernelsView(ListingView):
    """In the order in which they were generated."""

    NAME: ClassVar[str] = "kernels"
    TITLE: ClassVar[str] = "Kernels"
    NOTHING: ClassVar[str] = "no kernel was generated"
    COLUMNS: ClassVar[Sequence[Column]] = (
        Column("#", number=True),
        Column("compile"),
        Column("language"),
        Column("name", widest=200),
    )

    def rows(self) -> Sequence[Row]:
        kernels = self.session.explanation().kernels
        return [
            Row((str(item.index), one_line(item.compile_id), item.language, one_line(item.name)), item.index)
            for item in kernels
        ]

    def detail(self, key: int | str) -> Sequence[Line]:
        kernel = self.session.explanation().kernels[int(key)]
        if kernel.event is None:
            return [line(("the source of this kernel was not recorded", "dim"))]
        lines = split(self.session.payload(kernel.event))
        first, last = bounds(lines, kernel.name)
        code = lines[first : min(last, first + _SHOWN)]
        coloured = Highlighter(code, kernel_regions(code))
        made = [line(*coloured.line(number)) for number in range(len(code))]
        cut = (
            [line((f"{last - first - _SHOWN:,} more lines: enter shows them", "dim"))] if last - first > _SHOWN else []
        )
        return [*made, *cut]

    def enter(self, key: int | str) -> Location | None:
        kernel = self.session.explanation().kernels[int(key)]
        if kernel.event is None:
            return None
        first, _ = bounds(split(self.session.payload(kernel.event)), kernel.name)
        return Location("code", kernel.compile_id, document=f"event:{kernel.event}", line=first + 1)


def bounds(lines: Sequence[str], name: str) -> tuple[int, int]:
    """Where a kernel stands in its module: its definition, or for a library's the first call of it."""
    for number, text in enumerate(lines):
        if text.startswith(f"{name} = async_compile."):
            end = next((i for i in range(number + 1, len(lines)) if lines[i].startswith(("'''", '"""'))), number)
            return number, end + 1
    for number, text in enumerate(lines):
        if f".{name}(" in text:
            first = number - 1 if number and lines[number - 1].lstrip().startswith("#") else number
            return first, number + 1
    return 0, len(lines)
