"""The recompiles of an explanation as text."""

from __future__ import annotations

from collections.abc import Sequence

from dynadiag.explain.explanation import Explanation
from dynadiag.recording.records import GuardFailure, Recompile, Span
from dynadiag.render.clean import clean_line
from dynadiag.render.paths import place
from dynadiag.render.style import Style
from dynadiag.render.wrap import cut, hanging

__all__ = ["FIRST", "recompiles_section"]

FIRST = 10  # recompiles that a report shows without --all
_GUARDS = 8  # failing guards of one recompile that are shown without --all


def recompiles_section(explanation: Explanation, style: Style, all_: bool) -> list[str]:
    """Each recompile with its failing guards and what to do about it."""
    pairs = list(zip(explanation.recompiles, explanation.advice, strict=True))
    shown = pairs if all_ else pairs[:FIRST]
    lines: list[str] = []
    for item, advice in shown:
        lines += [*_recompile(item, advice, explanation.run.cwd, style, all_), ""]
    hidden = len(pairs) - len(shown)
    if hidden:
        lines += [style.paint(f"... and {hidden} more recompiles; --all shows them", "dim"), ""]
    return lines


def _recompile(item: Recompile, advice: Sequence[str], cwd: str | None, style: Style, all_: bool) -> list[str]:
    label = f"recompile[{clean_line(item.compile_id)}]"
    head = style.paint(label, "recompile") + style.paint(
        f": {cut(clean_line(item.function), style.columns - len(label) - 2)}", "strong"
    )
    where = cut(place(Span(item.file, item.line), cwd), style.columns - 6)
    lines = [head, f"  {style.paint('-->', 'gutter')} {where}"]
    reasons = item.reasons if all_ else item.reasons[:_GUARDS]
    lines += [line for reason in reasons for line in _reason(reason, cwd, style)]
    if len(reasons) < len(item.reasons):
        lines += [f"   = {len(item.reasons) - len(reasons)} more failing guards; --all shows them"]
    for hint in advice:
        first, *rest = hanging("help: ", hint, style.columns)
        lines += [style.paint("help:", "help") + first[5:], *rest]
    return lines


def _reason(reason: GuardFailure, cwd: str | None, style: Style) -> list[str]:
    guard, *rest = hanging("   = guard: ", reason.guard, style.columns)
    lines = [style.paint("   =", "gutter") + guard[4:], *rest]
    if reason.was is not None or reason.now is not None:
        change = f"{reason.source or 'value'} was {reason.was or '?'}, now {reason.now or '?'}"
        lines += hanging("     ", f"{change} (against {reason.against})", style.columns)
    if reason.file and reason.line:
        lines += [f"     made at {cut(place(Span(reason.file, reason.line), cwd), style.columns - 13)}"]
    return lines
