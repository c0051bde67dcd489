"""Why two ranks compile one function differently: a guarded value, an input or an option of torch that differs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dynadiag.diff.environment_differences import changed_options
from dynadiag.explanation.formatting import brief, list_some
from dynadiag.job.differences import RankDifference
from dynadiag.job.divergence import Location
from dynadiag.job.processes import Process
from dynadiag.job.ranks import name_ranks
from dynadiag.job.trace import CompileStep, GuardedValue, is_size, kind_of_type, short_type
from dynadiag.recording.opening import open_recording
from dynadiag.recording.torch_text.guards import guarded_value
from dynadiag.recording.torch_text.sources import source_text


@dataclass(frozen=True, slots=True)
class ValueDifference:
    """A value on which both ranks have a guard, by the guard's source, and the user's line that reads it."""

    source: str
    file: str | None
    line: int | None


def value_difference(found: RankDifference, line: int | None) -> ValueDifference | None:
    """Return the guarded value that differs between two compiles: of several the one read nearest above ``line``."""
    if not (isinstance(found.step, CompileStep) and isinstance(found.other_step, CompileStep)):
        return None
    differing = list(_differences(found.step, found.other_step))
    above = [each for each in differing if line is not None and each.line is not None and each.line <= line]
    nearest = max(above, key=lambda each: each.line or 0, default=None)
    return nearest or next(iter(differing), None)


def _differences(first: CompileStep, second: CompileStep) -> Iterator[ValueDifference]:
    theirs = {source: (value, guard) for source, value, guard in _values(second)}
    for source, value, guard in _values(first):
        other = theirs.get(source)
        if other is not None and other[0] != value:
            place = guard if guard.line is not None else other[1]
            yield ValueDifference(source, place.file, place.line)


def _values_on(steps: Iterable[CompileStep], source: str) -> str:
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


def value_cause(
    found: RankDifference, doing: Sequence[Process], others: Sequence[Process], location: Location
) -> str | None:
    """The guarded value that differs between the ranks, where one does."""
    value = value_difference(found, location[1])
    if value is None:
        return _input_cause(found, doing, others) or option_cause(found, doing, others)
    at = f" (line {value.line})" if value.line is not None and value.line != location[1] else ""
    known = [
        f"{_values_on(_same_compiles(each, step), value.source)} on {name_ranks(each)}"
        for each, step in ((doing, found.step), (others, found.other_step))
    ]
    between = "; " if any("," in each for each in known) else ", "
    return f"`{source_text(value.source)}` is {between.join(known)}{at}"


def _same_compiles(ranks: Sequence[Process], step: object) -> Iterator[CompileStep]:
    """The compile of a step on each of these ranks."""
    for each in (
        each for item in sorted(ranks, key=lambda each: each.rank or 0) if item.trace for each in item.trace.compiles
    ):
        if isinstance(step, CompileStep) and (each.label, each.compile.compile_id) == (
            step.label,
            step.compile.compile_id,
        ):
            yield each


def _input_cause(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> str | None:
    """The input of the graph that has another dtype or number of dimensions on these ranks."""
    step, other = found.step, found.other_step
    if found.node is None or not (isinstance(step, CompileStep) and isinstance(other, CompileStep)):
        return None
    graphs = [each.graphs[found.graph].graph.nodes for each in (step, other)]
    for here, there in zip(*graphs, strict=False):
        if is_size(here) or is_size(there):
            return None  # further inputs are not the same ones
        if here.target == there.target == "placeholder" and kind_of_type(here.type) != kind_of_type(there.type):
            name, types = step.input_name(here), [short_type(node.type) for node in (here, there)]
            return f"the input `{name}` is {types[0]} on {name_ranks(doing)}, {types[1]} on {name_ranks(others)}"
    return None


def option_cause(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> str | None:
    """torch's options that these ranks compile with and the others do not, with the line that sets them."""
    step, other = found.step, found.other_step
    if not (isinstance(step, CompileStep) and isinstance(other, CompileStep)):
        return None
    ids = other.compile.compile_id, step.compile.compile_id
    with open_recording(others[0].path) as before, open_recording(doing[0].path) as after:
        changes = changed_options(before, after, ids)
    told = [
        f"`{each.name}` is {each.now} on {name_ranks(doing)}, {each.was} on {name_ranks(others)}"
        + (f" (line {each.line})" if each.line is not None else "")
        for each in changes
    ]
    return list_some(told) if told else None
