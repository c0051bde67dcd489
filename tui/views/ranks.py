"""The Recordings screen: one row for each open recording or rank, and below how they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from dynadiag.explanation.formatting import duration, short_duration
from dynadiag.recording.json_values import json_object
from dynadiag.recording.opening import COMPARISON_NAME
from dynadiag.render.runtime_cost import break_even_text, speed_text
from tui.location import Location
from tui.ranks import RankSummary, differences, exit_status, first_divergence, read_rank
from tui.styled_text import Line, line, one_line
from tui.views.listing import ListingView
from tui.widgets.table import Column, Row

_MAX_BYTES = 10_000_000  # of a document


@dataclass(frozen=True, slots=True)
class MeasuredCall:
    """The times of a variant's calls in seconds, and its speed against the uncompiled call (above 1: faster)."""

    variant: str
    first: float | None
    warm: float | None
    ratio: float | None
    noise: bool
    pays_after: int | None


def read_measured_calls(recordings: Sequence[Path]) -> Mapping[Path, MeasuredCall]:
    """Return the measurements of each recording; none where `compare` did not write it."""
    found = (pair for folder in {path.parent for path in recordings} for pair in _in_folder(folder))
    known = dict(found)
    return {path: known[path] for path in recordings if path in known}


def _in_folder(folder: Path) -> Iterator[tuple[Path, MeasuredCall]]:
    document = folder / COMPARISON_NAME
    try:
        text = document.read_text() if document.stat().st_size <= _MAX_BYTES else ""
    except (OSError, UnicodeDecodeError):  # this folder is none of a comparison
        return
    told = json_object(text).get("rows")
    rows = [row for row in (told if isinstance(told, list) else []) if isinstance(row, dict)]
    several = len({str(row.get("name")) for row in rows}) > 1
    for row in rows:
        if isinstance(name := row.get("recording"), str):
            yield folder / Path(name).name, _measured(row, named=several)


def _measured(row: Mapping[str, Any], *, named: bool) -> MeasuredCall:
    """A row of the document; ``named``: the variants are of several functions."""
    speed = row.get("against_eager")
    against = speed if isinstance(speed, dict) else {}
    warm, pays_after = row.get("warm_call"), against.get("pays_after")
    return MeasuredCall(
        variant=one_line(f"{row.get('name')}: {row.get('variant')}" if named else str(row.get("variant"))),
        first=_number(row.get("first_call")),
        warm=_number(warm.get("median") if isinstance(warm, dict) else None),
        ratio=_number(against.get("ratio")),
        noise=against.get("noise") is True,
        pays_after=pays_after if isinstance(pays_after, int) else None,
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 < value < float("inf") else None


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
        self._measured: Mapping[Path, MeasuredCall] = {}

    def on_mount(self) -> None:
        self.details.show([line(("reading ...", "dim"))])

    def load(self) -> None:
        """Read the ranks once. Switching to another rank changes nothing here."""
        if not self._ranks:
            paths = self.browser.paths
            self.fetch("measured", lambda: read_measured_calls(paths), self._use_measured)

    def _use_measured(self, measured: Mapping[Path, MeasuredCall]) -> None:
        self._measured = measured
        self._read_next(0)

    def columns(self) -> Sequence[Column]:
        return _COMPARED_COLUMNS if self._measured else self.COLUMNS

    def _read_next(self, index: int) -> None:
        """Read one more rank. One at a time, so that memory holds only one."""
        paths = self.browser.paths
        if index == len(paths):
            self.details.show(differences(self._ranks))
            self.fetch("divergence", lambda: first_divergence(self._ranks, paths), self._show_divergence)
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

    def _show_divergence(self, lines: list[Line]) -> None:
        """Show the first divergence above what differs: to compare the ranks step by step takes longer."""
        if lines:
            self.details.show([*lines, *differences(self._ranks)])

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
    if call is None or call.warm is None:
        return Row((rank.name, "failed", *("-" for _ in _COMPARED_COLUMNS[2:])), rank.index, "error")
    speed, paid = "", ""
    if call.ratio is not None:
        speed, paid = speed_text(call.ratio, noise=call.noise), break_even_text(call.pays_after, noise=call.noise)
    first = short_duration(call.first) if call.first is not None else "-"
    numbers = (rank.graphs, rank.count_of("recompile"), rank.kernels, rank.count_of("break"))
    return Row((rank.name, short_duration(call.warm), speed, paid, first, *map(str, numbers)), rank.index)
