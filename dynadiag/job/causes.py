"""Why two ranks compile one function differently: the guarded value that differs between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dynadiag.explanation.formatting import brief, list_some
from dynadiag.explanation.guards import guarded_value
from dynadiag.job.trace import CompileStep, GuardedValue

__all__ = ["ValueDifference", "find_value_difference", "values_on"]


@dataclass(frozen=True, slots=True)
class ValueDifference:
    """A value on which both ranks have a guard, by the guard's source, and the user's line that reads it."""

    source: str
    file: str | None
    line: int | None


def find_value_difference(first: CompileStep, second: CompileStep, line: int | None) -> ValueDifference | None:
    """Return the guarded value that differs between two compiles: of several the one read nearest above ``line``."""
    found = list(_differences(first, second))
    above = [each for each in found if line is not None and each.line is not None and each.line <= line]
    nearest = max(above, key=lambda each: each.line or 0, default=None)
    return nearest or next(iter(found), None)


def _differences(first: CompileStep, second: CompileStep) -> Iterator[ValueDifference]:
    theirs = {source: (value, guard) for source, value, guard in _values(second)}
    for source, value, guard in _values(first):
        other = theirs.get(source)
        if other is not None and other[0] != value:
            place = guard if guard.line is not None else other[1]
            yield ValueDifference(source, place.file, place.line)


def values_on(steps: Iterable[CompileStep], source: str) -> str:
    """The values of a source in these compiles, each once: ``1, 2, 3``."""
    found = dict.fromkeys(value for step in steps for name, value, _ in _values(step) if name == source)
    return list_some([brief(value) for value in found])


def _values(step: CompileStep) -> Iterator[tuple[str, str, GuardedValue]]:
    """Each source of a value or of a length, the value, and the guard on it."""
    for guard in step.guards:
        length, equals, number = guard.expression.partition(" == ")
        if length == f"len({guard.source})" and equals:
            yield length, number, guard
        elif (value := guarded_value(guard.expression)) is not None:
            yield guard.source, value, guard
