"""A change of a guard in words."""

from __future__ import annotations

from collections.abc import Sequence

from dynadiag.explanation.changes import GuardChange
from dynadiag.explanation.formatting import brief, list_some
from dynadiag.explanation.guard_sources import is_condition, source_text
from dynadiag.recording.records import Symbol

__all__ = ["describe_change", "described", "what_changed"]


def what_changed(change: GuardChange) -> str:
    """The subject of a change, for a title: ``x.size()[0] changed``."""
    subject = brief(source_text(change.source)) if change.source else ""
    if change.reading.kind == "freed":
        return f"{subject or 'an object'} was freed"
    if is_condition(change.reading) or change.guard in change.was:
        return "a condition on its arguments no longer held"
    return f"{subject} changed" if subject else "a guard failed"


def describe_change(change: GuardChange, compile_id: str, symbols: Sequence[Symbol]) -> str:
    """What changed from what to what, against which cached entries; and the symbol that torch made of it."""
    if change.reading.kind == "freed":
        return f"{source_text(change.source)} of {list_some(change.against)} was freed"
    symbol = _symbol(change, compile_id, symbols)
    then = f", then a symbol, {symbol}" if symbol else ""
    return f"{described(change)}{then} (guard of {list_some(change.against)})"


def described(change: GuardChange) -> str:
    """By the values where those are known, by the guard's own text where not."""
    kind, source, now = change.reading.kind, source_text(change.source), brief(change.now)
    was = list_some([brief(text) for text in change.was])
    if (is_condition(change.reading) and change.guard) or change.guard in change.was:
        held = f"`{source_text(change.guard)}` does not hold"
        return f"{held}: {source} is now {now}" if kind == "shape" and change.now else held
    if kind == "identity" and all(text.startswith("another object") for text in change.was):
        return f"{source} is another object than before" + (f", now {now}" if change.now else "")
    if not change.was and change.now is None:
        return change.guard or "a guard of unknown text"
    if change.now is None:
        return f"{source} is no longer {was}"
    return f"{source} was {was}, now {now}" if change.was else f"{source} is now {now}"


def _symbol(change: GuardChange, compile_id: str, symbols: Sequence[Symbol]) -> str | None:
    """The symbol that stands for a size from this compile on, if torch made it one."""
    if change.reading.kind != "size":
        return None
    made = (symbol for symbol in symbols if symbol.compile_id == compile_id and symbol.event == "created")
    return next(
        (brief(symbol.name) for symbol in made if source_text(symbol.source) == source_text(change.source)), None
    )
