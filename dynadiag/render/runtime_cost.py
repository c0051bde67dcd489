"""What a profile of warm calls shows: the cost of each break, and how often each compiled code runs."""

from __future__ import annotations

from collections.abc import Sequence

from dynadiag.explanation.explanation import Explanation
from dynadiag.explanation.formatting import count, list_some, short_duration
from dynadiag.explanation.runtime_cost import CacheEntryRun, CallCost, WarmCalls, entries
from dynadiag.recording.records import Break
from dynadiag.render.paths import fit_path, source_location
from dynadiag.render.printer import Printer
from dynadiag.render.table import table

_MAX_NAME = 44  # columns of a place or a function
_MAX_ROWS = 10  # rows of a table


def cost_text(cost: CallCost, warm: WarmCalls) -> str:
    """``743 µs of a warm call's 970 µs; 1 more graph to enter; 0 operators run uncompiled``."""
    lead = f"{short_duration(cost.seconds)} of a warm call's {short_duration(warm.seconds)}"
    guards = f", {short_duration(cost.guard)} of it checking guards" if cost.guard else ""
    graphs = f"{_amount(cost.graphs)} more graph{'' if cost.graphs == 1 else 's'}"
    operators = f"{_amount(cost.operators)} operator{'' if cost.operators == 1 else 's'} run uncompiled"
    return f"{lead}{guards}; {graphs} to enter; {operators}"


def break_cost_table(
    costs: Sequence[tuple[Break, CallCost]], warm: WarmCalls, cwd: str | None, printer: Printer
) -> list[str]:
    """The breaks that warm calls run into, with their costs, as `Explanation.prices` has them."""
    shown = costs[:_MAX_ROWS]
    if not shown:
        return []
    of_each = [cost for _, cost in shown]
    names = [f"{fit_path(_site(root, cwd), _MAX_NAME - 8)} {root.gb_id or ''}" for root, _ in shown]
    columns = [
        ("a call", [short_duration(cost.seconds) for cost in of_each]),
        ("share", [f"{cost.seconds / warm.seconds:.0%}" if warm.seconds else "-" for cost in of_each]),
        ("guards", [short_duration(cost.guard) for cost in of_each]),
        ("graphs", [_amount(cost.graphs) for cost in of_each]),
        ("operators", [_amount(cost.operators) for cost in of_each]),
    ]
    if any(cost.launches for cost in of_each):
        columns.append(("launches", [_amount(cost.launches) for cost in of_each]))
    return table(names, columns, printer, _MAX_NAME)


def entries_table(found: Sequence[CacheEntryRun], printer: Printer) -> list[str]:
    """The compiled code that warm calls run, the most frequent first, and a note on the code that none runs."""
    hot = [entry for entry in found if entry.calls][:_MAX_ROWS]
    lines = []
    if hot:
        columns = [
            ("runs", [_amount(entry.calls) for entry in hot]),
            ("guards", [str(entry.compile.guards) for entry in hot]),
            ("checked in", [short_duration(entry.guard or 0.0) for entry in hot]),
        ]
        lines = table([_code(entry) for entry in hot], columns, printer, _MAX_NAME)
    cold = [_code(entry) for entry in found if not entry.run]
    if cold:
        what = f"{list_some(cold)}: compiled, and run by no warm call"
        lines += printer.labelled("note", what)
    return lines


def warm_section(explanation: Explanation, printer: Printer) -> list[str]:
    """The section of a report on how often a warm call runs each compiled code; empty without a profile."""
    warm = explanation.warm
    if warm is None:
        return []
    calls = count(warm.calls, "warm call")
    text = f"compiled code in {calls}, {short_duration(warm.seconds)} each under the profiler"
    return [
        *printer.labelled("warm", text),
        *entries_table(entries(explanation.compiles, warm), printer),
        "",
    ]


WITHIN_NOISE, MAYBE = "within the noise", "maybe"  # of times that overlap: near to each other, and far apart
_NEAR = 1.5  # ratio of two medians; those of two equal variants are nearer even on a busy machine


def _amount(number: float) -> str:
    """A count that may be a mean: ``3``, ``1.5``, ``0.02``."""
    return f"{number:,.0f}" if number == round(number) else f"{number:.2g}"


def _site(root: Break, cwd: str | None) -> str:
    span = root.span
    return source_location(span.file, span.line, span.column, cwd)


def _code(entry: CacheEntryRun) -> str:
    return f"{entry.compile.compile_id} {entry.compile.function}"


def speed_text(ratio: float, *, noise: bool) -> str:
    """``ratio`` is the time of the uncompiled call divided by that of the variant: ``1.33x faster``.

    Where the times overlap, medians that are far apart are still told: few rounds may not have been enough.

    >>> speed_text(0.5, noise=False)
    '2.00x slower'
    >>> speed_text(0.25, noise=True)
    'maybe 4.00x slower'
    """
    if ratio <= 0 or (noise and 1 / _NEAR < ratio < _NEAR):
        return WITHIN_NOISE
    speed = f"{ratio:.2f}x faster" if ratio >= 1 else f"{1 / ratio:.2f}x slower"
    return f"{MAYBE} {speed}" if noise else speed


def break_even_text(calls: int | None, *, noise: bool) -> str:
    """After how many calls compiling has paid for itself; ``None`` is never. Within the noise that means nothing."""
    if noise:
        return "-"
    return "never" if calls is None else count(calls, "call")
