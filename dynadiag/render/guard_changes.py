"""A change of a guard in words."""

from __future__ import annotations

from collections.abc import Sequence

from dynadiag.explain.changes import GuardChange
from dynadiag.explain.guard_sources import is_condition, sizes_in, source_text
from dynadiag.recording.records import Symbol
from dynadiag.render.clean import clean_line
from dynadiag.render.formatting import list_some
from dynadiag.render.wrap import truncate_middle

__all__ = ["describe_change", "sizes_at"]

_VALUE = 32  # columns of a value


def describe_change(change: GuardChange, compile_id: str, symbols: Sequence[Symbol]) -> str:
    """What changed from what to what, against which cached entries; and the symbol that torch made of it."""
    if change.reading.kind == "freed":
        return f"{source_text(change.source)} of {list_some(change.against)} was freed"
    symbol = _symbol(change, compile_id, symbols)
    then = f", then a symbol, {symbol}" if symbol else ""
    return f"{_change(change)}{then} (guard of {list_some(change.against)})"


def _change(change: GuardChange) -> str:
    """By the values where those are known, by the guard's own text where not."""
    kind, source, now = change.reading.kind, source_text(change.source), _value(change.now)
    was = list_some([_value(text) for text in change.was])
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
        (_value(symbol.name) for symbol in made if source_text(symbol.source) == source_text(change.source)), None
    )


def sizes_at(change: GuardChange) -> tuple[str, ...]:
    """The sizes that a condition is on; none for any other guard."""
    return sizes_in(change.guard) if change.reading.kind == "shape" else ()


def _value(text: str | None) -> str:
    return truncate_middle(clean_line(text or ""), _VALUE)
