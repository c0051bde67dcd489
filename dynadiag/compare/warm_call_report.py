"""Reports on warm calls: what each graph break costs, and how often each compiled code runs. As tables and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from dynadiag.compare.variant_result import VariantResult
from dynadiag.explanation.runtime_cost import CacheEntryRun, CallCost
from dynadiag.recording.records import Break
from dynadiag.render.clean import clean_line
from dynadiag.render.runtime_cost import entries_table, price_table
from dynadiag.render.style import Style

__all__ = ["warm_call_json", "warm_call_tables"]


def warm_call_tables(named: Sequence[tuple[str, VariantResult]], style: Style) -> list[str]:
    """The tables of the variants, one for each pattern of breaks and runs: most variants share the pattern.

    ``named`` pairs the name of each variant with its result.
    """
    lines: list[str] = []
    shown: list[object] = []
    for name, row in named:
        if (shape := _break_and_run_pattern(row)) and shape not in shown:
            shown.append(shape)
            lines += _tables(name, row, style)
    return lines


def warm_call_json(row: VariantResult) -> dict[str, Any]:
    """``profiled_call``, ``break_costs`` (most expensive first) and ``entries``; empty without a profile."""
    found = row.compiled
    if found is None or found.warm is None:
        return {"profiled_call": None, "break_costs": [], "entries": []}
    return {
        "profiled_call": {"calls": found.warm.calls, "seconds": found.warm.seconds, "outside": found.warm.outside},
        "break_costs": [_break(root, cost) for root, cost in found.prices],
        "entries": [_entry(item) for item in found.entries],
    }


def _break_and_run_pattern(row: VariantResult) -> object:
    """The breaks of a variant and the code it runs. None if it runs a single code: then there is nothing to list."""
    found = row.compiled
    if found is None or found.warm is None or len(found.entries) < 2:
        return None
    sites = frozenset((root.span, root.gb_type) for root, _ in found.prices)
    return sites, tuple((entry.compile.function, entry.calls, entry.run) for entry in found.entries)


def _tables(name: str, row: VariantResult, style: Style) -> list[str]:
    found = row.compiled
    assert found is not None
    assert found.warm is not None
    lines: list[str] = []
    if prices := price_table(found.prices, found.warm, found.cwd, style):
        lines += ["", style.paint(f"what the breaks cost in a warm call: {clean_line(name)}", "strong"), *prices]
    if table := entries_table(found.entries, style):
        lines += ["", style.paint(f"compiled code in a warm call: {clean_line(name)}", "strong"), *table]
    return lines


def _break(root: Break, cost: CallCost) -> dict[str, Any]:
    span = root.span
    return {
        "gb_id": root.gb_id,
        "gb_type": root.gb_type,
        "file": span.file,
        "line": span.line,
        "column": span.column,
        "function": root.function,
        **asdict(cost),
    }


def _entry(item: CacheEntryRun) -> dict[str, Any]:
    compile_ = item.compile
    return {
        "compile_id": compile_.compile_id,
        "function": compile_.function,
        "file": compile_.file,
        "line": compile_.line,
        "calls": item.calls,
        "guards": compile_.guards,
        "guard_seconds": item.guard,
        "run_again": item.run,
    }
