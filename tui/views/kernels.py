"""The Kernels screen: a table to sort and filter, with the code of the selected kernel."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType

from dynadiag.explanation.formatting import count, list_some
from dynadiag.kernels.graph_parser import split_lines
from dynadiag.recording.records import Kernel
from dynadiag.render.call_costs import MAX_AUTOMATIC, KernelCost, KernelCosts, read_kernel_costs
from dynadiag.render.wrap import wrap
from tui.documents import kernel_regions
from tui.highlighting import Highlighter
from tui.key_bindings import footer_key
from tui.location import Location
from tui.session import Session
from tui.styled_text import Line, line, one_line
from tui.views.listing import ListingView
from tui.widgets.table import Column, LazyRows, Row, before_last

_COMPILES_PER_READ = 8  # compiles read by one worker; the first reads one, so that its rows are filled at once
_BYTES = "bytes"
_TIME = "µs"
_TIME_COLUMNS = (
    Column(_TIME, numeric=True),
    Column("of peak", numeric=True),
)  # shown if `dynadiag kernels --measure` has measured
_FAILED = "no kernel was generated: compiling failed before that"
_CACHED = " (above 100%: of what came out of a cache)"
_INFERRED = "? after a line: inferred from the generated code"
_MAX_OPERATORS = 12  # operators of a kernel that its detail names
_MIN_NAME_PART = 20  # columns for a part of a long name
_MAX_SOURCE_LINES = 400  # lines of a kernel in the detail; enter shows all of it


class KernelsView(ListingView):
    """A row for each call of a kernel, sorted by time if measured, otherwise by bytes moved once known."""

    NOTHING: ClassVar[str] = "no kernel was generated: only the backend `inductor` generates them"
    WRAP: ClassVar[bool] = False
    COLUMNS: ClassVar[Sequence[Column]] = (
        Column("#", numeric=True, spare=2),
        Column("compile", spare=1),
        Column("pass"),
        Column("language", spare=3),  # most names begin with it
        Column("bytes", numeric=True),
        Column("shape", max_width=20, spare=1),
        Column("module", max_width=30, is_path=True),
        Column("where", max_width=28, is_path=True),
        Column("name", max_width=200, is_name=True, min_last_width=22),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        footer_key("u", "app.measure", "time", "kernels.measure", "run the generated code, and time each kernel"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._costs: KernelCosts = {}
        self._costs_session: Session | None = None  # the recording that the costs belong to
        self._detail_of: tuple[object, ...] = ()  # what the detail depends on

    def offers(self, action: str) -> bool:
        return super().offers(action) and (action != "app.measure" or self.table.whole_count > 0)

    @property
    def _measured(self) -> bool:
        return any(cost.seconds is not None for costs in self._costs.values() for cost in costs)

    def nothing(self, words: str) -> str:
        explanation = self.session.known_explanation
        compiles = explanation.compiles if explanation is not None else ()
        failed = bool(compiles) and all(item.outcome == "error" for item in compiles)
        return super().nothing(_FAILED if failed else words)

    def columns(self) -> Sequence[Column]:
        return before_last(self.COLUMNS, _TIME_COLUMNS) if self._measured else self.COLUMNS

    def rows(self) -> Sequence[Row]:
        known, measured, kernels = self._costs, self._measured, self.session.all_kernels()
        shown = [(item, cost) for item in kernels for cost in known.get((item.event, item.name)) or (None,)]
        return LazyRows(len(shown), lambda index: _row(*shown[index], measured=measured))

    def _show_sorted(self, rows: Sequence[Row]) -> None:
        top, titles = self.table.cursor == 0, [column.title for column in self.columns()]
        self.table.show(rows, self.columns())
        self.table.sort_by(titles.index(_TIME if self._measured else _BYTES), down=True)
        if top:
            self.table.move_to(0)

    def _show(self, rows: Sequence[Row]) -> None:
        super()._show(rows)
        if self.is_current or len(rows) <= MAX_AUTOMATIC:
            self._start_costs()

    async def screen_shown(self) -> None:
        if not self.is_reading:
            self._start_costs()

    def _start_costs(self) -> None:
        """Read the costs, unless those of this recording are read or being read."""
        if self._costs_session is not self.session and self.table.whole_count:
            self._costs_session, self._costs = self.session, {}
            self._read_costs(list(dict.fromkeys(item.compile_id for item in self.session.all_kernels())), 1)

    def _read_costs(self, ids: list[str], number: int) -> None:
        """Read the costs of a number of compiles, show what is known so far, and go on with more at a time."""
        session = self.session
        if not ids:  # each row is made once, and here: to sort them asks for all of them
            self.fetch("costs", lambda: list(self.rows()), self._show_sorted)
            return

        def take(found: KernelCosts) -> None:
            self._costs.update(found)
            self.table.show(self.rows(), self.columns())
            left = f" · reading {count(len(ids) - number, 'compile')}" if len(ids) > number else ""
            self.table.unit, self.table.total = " calls", f" of {count(len(session.all_kernels()), 'kernel')}{left}"
            self.table.show_count()
            self._read_costs(ids[number:], min(2 * number, _COMPILES_PER_READ))

        self.fetch("costs", lambda: read_kernel_costs(session.recording, ids[:number], session.callers), take)

    def _kernel(self, key: int | str) -> tuple[Kernel | None, KernelCost | None]:
        """The kernel of a row, and its call if the calls have been read."""
        index, _, number = str(key).partition("/")
        kernels = self.session.all_kernels()
        kernel = kernels[int(index)] if int(index) < len(kernels) else None
        costs = self._costs.get((kernel.event, kernel.name), []) if kernel is not None else []
        return kernel, next((cost for cost in costs if cost.number == int(number or 1)), None)

    def fetch_detail(self, key: int | str) -> None:
        """Read the detail of a row, unless it is shown: the table is shown again whenever costs were read."""
        of = (self.session, key, self._kernel(key)[1], self.details.columns)
        if of != self._detail_of:
            self._detail_of = of
            super().fetch_detail(key)

    def detail(self, key: int | str) -> Sequence[Line]:
        kernel, cost = self._kernel(key)
        if kernel is None:
            return []
        if kernel.event is None:
            return [line(("the source of this kernel is not in the recording", "dim"))]
        lines = split_lines(self.session.recording.payload(kernel.event))
        first, last = kernel_bounds(lines, kernel.name)
        if kernel.language == "extern" and cost is not None:  # this call, with the comment above it
            first, last = max(0, cost.line - 2), cost.line
        code = split_lines(textwrap.dedent("\n".join(lines[first : min(last, first + _MAX_SOURCE_LINES)])))
        coloured = Highlighter(code, kernel_regions(code))
        made = [line(*coloured.line(number)) for number in range(len(code))]
        more = last - first - _MAX_SOURCE_LINES
        cut = [line((f"{more:,} more lines: enter shows them", "dim"))] if more > 0 else []
        about = f"  {kernel.language}, compile {one_line(kernel.compile_id)}{f', call {cost.number}' if cost else ''}"
        *name, end = wrap(kernel.name, max(self.detail_columns - len(about), _MIN_NAME_PART))
        head = [*(line((part, "strong")) for part in name), line((end, "strong"), (about, "dim"))]
        return [*head, *(_cost_lines(cost, self.detail_columns) if cost is not None else ()), *made, *cut]

    def target_of(self, key: int | str) -> Location | None:
        kernel, cost = self._kernel(key)
        if kernel is None or kernel.event is None:
            return None
        # The code of a kernel that is called several times would not say which call is meant.
        several = len(self._costs.get((kernel.event, kernel.name), ())) > 1
        if cost is not None and (several or kernel.language == "extern"):
            return Location("code", kernel.compile_id, document=f"event:{kernel.event}", line=cost.line)
        first, last = kernel_bounds(split_lines(self.session.recording.payload(kernel.event)), kernel.name)
        called = last if kernel.language == "extern" else first + 1  # the line before a call is its comment
        return Location("code", kernel.compile_id, document=f"event:{kernel.event}", line=called)


def _row(item: Kernel, cost: KernelCost | None, *, measured: bool) -> Row:
    told = cost or KernelCost(1, 0)
    moved = "-" if told.bytes_moved is None else f"{told.bytes_moved:,}"
    head = (str(item.index), one_line(item.compile_id), one_line(told.stage) or "-", item.language)
    place = (told.shape or "-", told.module or "-", told.where or "-")
    again = told.number > 1
    cells = (*head, moved, *place, f"{one_line(item.name)}{f' #{told.number}' if again else ''}")
    key = f"{item.index}/{told.number}" if again else item.index
    return Row(before_last(cells, _times(cost)) if measured else cells, key)


def _times(cost: KernelCost | None) -> tuple[str, str]:
    seconds = "-" if cost is None or cost.seconds is None else f"{cost.seconds * 1e6:,.1f}"
    return seconds, "-" if cost is None or cost.peak_share is None else f"{cost.peak_share:.0%}"


def _cost_lines(cost: KernelCost, columns: int) -> list[Line]:
    """Return the measured time of a call, what it computes, and where that is in the program."""
    time, share = _times(cost)
    of = f", {share} of the device's peak" if cost.peak_share is not None else ""
    of += _CACHED if (cost.peak_share or 0) > 1 else ""
    timed = [line((f"{time} µs", "strong"), (of, "dim"))] if cost.seconds else []
    work = [f"{cost.bytes_moved:,} bytes moved"] if cost.bytes_moved is not None else []
    work += [f"{cost.flops:,} floating-point operations"] if cost.flops else []
    work += [f"computes {', '.join(map(one_line, cost.operators[:_MAX_OPERATORS]))}"] if cost.operators else []
    work += [cost.shape] if cost.shape else []
    about = [line((part, "dim")) for part in wrap(", ".join(work), columns)] if work else []
    of_modules = f"of {list_some(cost.modules)}" if cost.modules else ""
    places = [part for part in (of_modules, cost.chain) if part] if cost.chain else cost.lines
    guessed = any(at.endswith("?") for at in cost.lines)
    meaning = [line((_INFERRED, "dim"))] if guessed else []
    meaning += [line((part, "dim")) for text in cost.fusion for part in wrap(text, columns)]
    return [*timed, *about, *(line((part, "key")) for at in places for part in wrap(at, columns)), *meaning]


def kernel_bounds(lines: Sequence[str], name: str) -> tuple[int, int]:
    """Return the first and last line of a kernel in its module: its definition, or the first call of a library."""
    for number, text in enumerate(lines):
        if text.startswith(f"{name} = async_compile."):
            end = next((i for i in range(number + 1, len(lines)) if lines[i].startswith(("'''", '"""'))), number)
            return number, end + 1
    for number, text in enumerate(lines):
        if f".{name}(" in text:
            first = number - 1 if number and lines[number - 1].lstrip().startswith("#") else number
            return first, number + 1
    return 0, len(lines)
