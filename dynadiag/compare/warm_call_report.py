"""Reports on warm calls: what each graph break costs, and how often each compiled code runs. As tables."""

from __future__ import annotations

from collections.abc import Sequence

from dynadiag.compare.variant_result import VariantResult
from dynadiag.render.clean import clean_line
from dynadiag.render.runtime_cost import entries_table, price_table
from dynadiag.render.style import Style

__all__ = ["warm_call_tables"]


def warm_call_tables(named: Sequence[tuple[str, VariantResult]], style: Style) -> list[str]:
    """The tables of the variants, one for each pattern of breaks and runs: most variants share the pattern.

    ``named`` pairs the name of each variant with its result.
    """
    lines: list[str] = []
    shown: list[object] = []
    for name, result in named:
        if (pattern := _break_and_run_pattern(result)) and pattern not in shown:
            shown.append(pattern)
            lines += _tables(name, result, style)
    return lines


def _break_and_run_pattern(result: VariantResult) -> object:
    """The breaks of a variant and the code it runs. None if it runs a single code: then there is nothing to list."""
    summary = result.compiled
    if summary is None or summary.warm is None or len(summary.entries) < 2:
        return None
    sites = frozenset((root.span, root.gb_type) for root, _ in summary.prices)
    return sites, tuple((entry.compile.function, entry.calls, entry.run) for entry in summary.entries)


def _tables(name: str, result: VariantResult, style: Style) -> list[str]:
    summary = result.compiled
    assert summary is not None
    assert summary.warm is not None
    lines: list[str] = []
    if prices := price_table(summary.prices, summary.warm, summary.cwd, style):
        lines += ["", style.paint(f"what the breaks cost in a warm call: {clean_line(name)}", "strong"), *prices]
    if table := entries_table(summary.entries, style):
        lines += ["", style.paint(f"compiled code in a warm call: {clean_line(name)}", "strong"), *table]
    return lines
