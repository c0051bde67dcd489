"""Why two ranks compile one function differently: the guarded value that differs between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dynadiag.explanation.formatting import brief
from dynadiag.explanation.guard_text import source_text
from dynadiag.explanation.guards import guarded_value
from dynadiag.job.trace import CompileStep, GuardedValue

__all__ = ["ValueDifference", "find_value_difference"]


@dataclass(frozen=True, slots=True)
class ValueDifference:
    """A value on which both ranks have a guard, as each rank had it, and the user's line that reads it."""

    source: str
    first: str
    second: str
    file: str | None
    line: int | None


def find_value_difference(first: CompileStep, second: CompileStep, line: int | None) -> ValueDifference | None:
    """Return the guarded value that differs between two compiles: of several the one read nearest above ``line``."""
    found = list(_differences(first, second))
    above = [each for each in found if line is not None and each.line is not None and each.line <= line]
    nearest = max(above, key=lambda each: each.line or 0, default=None)
    return nearest or next(iter(found), None)


def _differences(first: CompileStep, second: CompileStep) -> Iterator[ValueDifference]:
    theirs = {guard.source: (value, guard) for guard, value in _values(second)}
    for guard, value in _values(first):
        other = theirs.get(guard.source)
        if other is not None and other[0] != value:
            place = guard if guard.line is not None else other[1]
            yield ValueDifference(source_text(guard.source), brief(value), brief(other[0]), place.file, place.line)


def _values(step: CompileStep) -> Iterator[tuple[GuardedValue, str]]:
    for guard in step.guards:
        if (value := guarded_value(guard.expression)) is not None:
            yield guard, value
