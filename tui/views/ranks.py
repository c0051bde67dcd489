"""The Recordings screen: one row for each open recording or rank, and below how they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dynadiag.explanation.formatting import duration
from tui.location import Location
from tui.ranks import RankSummary, differences, exit_status, read_rank
from tui.styled_text import line
from tui.views.listing import ListingView
from tui.widgets.table import Column, Row

__all__ = ["RanksView"]

_COUNTED_KINDS = ("compile", "graph", "break", "recompile", "kernel")


class RanksView(ListingView):
    """Reads one rank after another and shows each row as soon as it is read."""

    NAME: ClassVar[str] = "ranks"
    TITLE: ClassVar[str] = "Recordings"
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

    def on_mount(self) -> None:
        self.details.show([line(("reading ...", "dim"))])

    def load(self) -> None:
        """Read the ranks once. Switching to another rank changes nothing here."""
        if not self._ranks:
            self._read_next(0)

    def _read_next(self, index: int) -> None:
        """Read one more rank. One at a time, so that memory holds only one."""
        paths = self.browser.paths
        if index == len(paths):
            self.details.show(differences(self._ranks))
            return
        self.details.show([line((f"reading {index + 1} of {len(paths)} ...", "dim"))])
        own = self.session if index == self.browser.rank else None
        self.fetch("rank", lambda: read_rank(index, paths[index], own), self._add_rank)

    def _add_rank(self, rank: RankSummary) -> None:
        self._ranks.append(rank)
        self._show([_row(one) for one in self._ranks])
        self._read_next(len(self._ranks))

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
