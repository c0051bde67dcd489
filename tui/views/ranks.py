"""The Ranks screen: one row for each rank, and below how the ranks differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dynadiag.render.words import duration
from tui.location import Location
from tui.ranks import Rank, differences, ending, read_rank
from tui.roles import line
from tui.views.listing import ListingView
from tui.widgets.table import Column, Row

__all__ = ["RanksView"]

_KINDS = ("compile", "graph", "break", "recompile", "kernel")


class RanksView(ListingView):
    """Reads one rank after another and shows each row as soon as it is read."""

    NAME: ClassVar[str] = "ranks"
    TITLE: ClassVar[str] = "Ranks"
    DETAIL: ClassVar[str] = "where they differ"
    COLUMNS: ClassVar[Sequence[Column]] = (
        Column("recording", widest=36),
        Column("ended", widest=32),
        *(Column(f"{kind}s", number=True) for kind in _KINDS),
        Column("time", number=True),
    )

    def __init__(self) -> None:
        super().__init__()
        self._ranks: list[Rank] = []

    def on_mount(self) -> None:
        self.details.show([line(("reading ...", "dim"))])

    def load(self) -> None:
        """Read the ranks once. Switching to another rank changes nothing here."""
        if not self._ranks:
            self._next(0)

    def _next(self, index: int) -> None:
        """Read one more rank. One at a time, so that memory holds only one."""
        paths = self.browser.paths
        if index == len(paths):
            self.details.show(differences(self._ranks))
            return
        self.details.show([line((f"reading {index + 1} of {len(paths)} ...", "dim"))])
        own = self.session if index == self.browser.rank else None
        self.fetch("rank", lambda: read_rank(index, paths[index], own), self._take)

    def _take(self, rank: Rank) -> None:
        self._ranks.append(rank)
        self._show([_row(one) for one in self._ranks])
        self._next(len(self._ranks))

    def moved(self, lines: object) -> None:
        """Do nothing: the detail is about all ranks."""

    def enter(self, key: int | str) -> Location | None:
        rank = self._ranks[int(key)]
        if rank.problem is not None:
            self.browser.say_problem(rank.problem)
            return None
        return Location("overview", rank=rank.index)


def _row(rank: Rank) -> Row:
    if rank.run is None:
        return Row((rank.name, rank.problem or "", *("-" for _ in _KINDS), "-"), rank.index, "error")
    ended, role = ending(rank.run)
    numbers = (rank.number("compile"), rank.graphs, rank.number("break"), rank.number("recompile"), rank.kernels)
    cells = (rank.name, ended, *map(str, numbers), duration(rank.seconds) if rank.seconds is not None else "-")
    return Row(cells, rank.index, "" if role == "good" else role)
