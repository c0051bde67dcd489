"""The Recordings screen: one row for each open recording or rank, and below how they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from dynadiag.explanation.formatting import duration, short_duration
from dynadiag.render.measured_calls import MeasuredCall, read_measured_calls
from dynadiag.render.runtime_cost import break_even_text, speed_text
from tui.location import Location
from tui.ranks import RankSummary, differences, exit_status, first_divergence, read_rank
from tui.styled_text import Line, line
from tui.views.listing import ListingView
from tui.widgets.table import Column, Row

_COUNTED_KINDS = ("compile", "graph", "break", "recompile", "kernel")
_COMPARED_COLUMNS = (
    Column("variant", max_width=40),
    Column("warm call", numeric=True),
    Column("against eager", numeric=True),
    Column("pays after", numeric=True),
    Column("first call", numeric=True),
    *(Column(kind, numeric=True, spare=1) for kind in ("graphs", "recompiles", "kernels")),
    Column("breaks", numeric=True),
)  # of the recordings of `dynadiag compare`


class RanksView(ListingView):
    """Reads one rank after another and shows each row as soon as it is read."""

    DETAIL: ClassVar[str] = "where they differ"
    COLUMNS: ClassVar[Sequence[Column]] = (
        Column("recording", max_width=36),
        Column("ended", max_width=32),
        *(Column(f"{kind}s", numeric=True) for kind in _COUNTED_KINDS),
        Column("time", numeric=True),
    )

    def __init__(self) -> None:
        super().__init__()
        self._ranks: list[RankSummary] = []
        self._measured: Mapping[Path, MeasuredCall] = {}

    def on_mount(self) -> None:
        self.details.show([line(("reading ...", "dim"))])

    def load(self) -> None:
        """Read the ranks once. Switching to another rank changes nothing here."""
        paths = self.browser.paths

        def use(measured: Mapping[Path, MeasuredCall]) -> None:
            self._measured = measured
            self._read_next(0)

        if not self._ranks:
            self.fetch("measured", lambda: read_measured_calls(paths), use)

    def columns(self) -> Sequence[Column]:
        return _COMPARED_COLUMNS if self._measured else self.COLUMNS

    def _read_next(self, index: int) -> None:
        """Read one more rank. One at a time, so that memory holds only one."""
        paths = self.browser.paths
        if index == len(paths):
            found = differences(self._ranks)  # shown below the first divergence: to find that takes longer
            self.details.show(found)

            def show(first: list[Line]) -> None:
                if first:
                    self.details.show([*first, *found])

            self.fetch("divergence", lambda: first_divergence(self._ranks, paths), show)
            return
        self.details.show([line((f"reading {index + 1} of {len(paths)} ...", "dim"))])
        own = self.session if index == self.browser.rank else None
        self.fetch("rank", lambda: read_rank(index, paths[index], own), self._add_rank)

    def _add_rank(self, rank: RankSummary) -> None:
        call = self._measured.get(self.browser.paths[rank.index])
        is_measured = call is not None and call.warm is not None
        self._ranks.append(replace(rank, name=call.variant, is_measured=is_measured) if call else rank)
        self._show([self._row(one) for one in self._ranks])
        self._read_next(len(self._ranks))

    def _row(self, rank: RankSummary) -> Row:
        return _compared_row(rank, self._measured.get(self.browser.paths[rank.index])) if self._measured else _row(rank)

    def cursor_moved(self, lines: object) -> None:
        """Do nothing: the detail is about all ranks."""

    def target_of(self, key: int | str) -> Location | None:
        rank = self._ranks[int(key)]
        if rank.error is not None:
            self.browser.report_problem(rank.error)
            return None
        return Location("overview", rank=rank.index)


def _row(rank: RankSummary) -> Row:
    if rank.run is None:
        return Row((rank.name, rank.error or "", *("-" for _ in _COUNTED_KINDS), "-"), rank.index, "error")
    ended, role = exit_status(rank.run, live=rank.live)
    numbers = (rank.count_of("compile"), rank.graphs, rank.count_of("break"), rank.count_of("recompile"), rank.kernels)
    cells = (rank.name, ended, *map(str, numbers), duration(rank.seconds) if rank.seconds is not None else "-")
    return Row(cells, rank.index, "" if role == "good" else role)


def _compared_row(rank: RankSummary, call: MeasuredCall | None) -> Row:
    """The row of a variant of a comparison; of one that failed, nothing was measured."""
    warm = call.warm if call is not None else None
    if call is None or warm is None:
        return Row((rank.name, "failed", *("-" for _ in _COMPARED_COLUMNS[2:])), rank.index, "error")
    speed, paid, against = "", "", call.against_eager
    if against is not None and against.ratio is not None:
        speed = speed_text(against.ratio, noise=against.noise)
        paid = break_even_text(against.pays_after, noise=against.noise)
    first = short_duration(call.first_call) if call.first_call is not None else "-"
    numbers = (rank.graphs, rank.count_of("recompile"), rank.kernels, rank.count_of("break"))
    return Row((rank.name, short_duration(warm), speed, paid, first, *map(str, numbers)), rank.index)
