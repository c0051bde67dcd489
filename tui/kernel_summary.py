"""The kernels on the overview of a run without findings: where its time goes from now on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dynadiag.explanation.formatting import count, size_text
from dynadiag.recording.records import Kernel
from dynadiag.render.call_costs import MAX_AUTOMATIC, KernelCost, KernelCosts, read_kernel_costs
from dynadiag.render.wrap import truncate_middle
from tui.location import Location
from tui.session import Session
from tui.styled_text import Line, line, one_line

_MIN_LISTED = 6  # kernels
_OTHER_COLUMNS = 26  # beside the name and the line
_MIN_NAME = 20  # columns
_OTHER_ROWS = 2  # the title, and how many more there are
MIN_ROWS = _MIN_LISTED + _OTHER_ROWS


def read_kernel_summary(session: Session, rows: int, columns: int) -> list[Line]:
    """Return the kernels that take longest, or that move most, as many as fit in ``rows``, and what all of them do.

    A name that does not fit in ``columns`` with its line is cut in the middle: its number at the end tells it apart.

    There are none where something was found, which matters more, or where so many kernels are that reading their code
    takes long.
    """
    kernels = session.all_kernels()
    found = any(item.severity != "note" for item in session.explanation().findings)
    if found or not 0 < len(kernels) <= MAX_AUTOMATIC:
        return []
    costs = read_kernel_costs(session.recording, dict.fromkeys(item.compile_id for item in kernels), session.callers)
    known = [item for item in kernels if (item.event, item.name) in costs]
    return list(_lines(known, costs, max(_MIN_LISTED, rows - _OTHER_ROWS), columns)) if known else []


def _lines(kernels: Sequence[Kernel], costs: KernelCosts, number: int, columns: int) -> Iterator[Line]:
    calls = [(item, cost) for item in kernels for cost in costs[item.event, item.name]]
    measured = any(cost.seconds is not None for _, cost in calls)
    ranked = sorted(calls, key=lambda pair: -((pair[1].seconds if measured else pair[1].bytes_moved) or 0))
    title = "Kernels, those that take longest first" if measured else "Kernels, those that move most bytes first"
    yield line((title, "title"), (f"  {_whole(calls)}", "dim"))
    for item, cost in ranked[:number]:
        place = cost.module or cost.where
        room = columns - _OTHER_COLUMNS - len(place)
        name = one_line(item.name)  # whole where too little of it would fit beside its line: it takes two lines
        yield line(
            (f"{_amount(cost, measured=measured):>12}  ", "strong"),
            (f"{cost.stage:<9} ", "dim"),
            f"{truncate_middle(name, room) if room >= _MIN_NAME else name}  ",
            (place, "dim"),
            to=Location("kernels", item=item.index),
        )
    if len(ranked) > number:
        yield line((f"and {len(ranked) - number:,} more", "dim"), to=Location("kernels"))


def _amount(cost: KernelCost, *, measured: bool) -> str:
    if measured:
        return "-" if cost.seconds is None else f"{cost.seconds * 1e6:,.1f} µs"
    return size_text(cost.bytes_moved) if cost.bytes_moved else "-"


def _whole(calls: Sequence[tuple[Kernel, KernelCost]]) -> str:
    """How many kernels are generated and of a library, how often they are called, and what they move in all."""
    kernels = dict.fromkeys(item for item, _ in calls)
    library = sum(item.language == "extern" for item in kernels)
    moved = sum(cost.bytes_moved or 0 for _, cost in calls)
    parts = (
        f"{len(kernels) - library} generated",
        f"{library} of a library" if library else "",
        count(len(calls), "call"),
        f"{size_text(moved)} moved (an estimate)" if moved else "",
    )
    return ", ".join(filter(None, parts))
