"""`if` on a tensor's value around what prints, warns, logs, raises or keeps a value, and `assert`: a function of the
module that takes the condition, and that torch calls after the graph, or in it. What the sides compute besides is
chosen with `torch.where`. This is right because the condition and the values of the message are computed where they
were, and only the effect waits; in the graph it does not wait. The proof compares both streams, what is kept, and the
exceptions with what was changed before, and has to see both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import libcst as cst

from dynadiag.fixes.candidate import Candidate, Condition, Site
from dynadiag.fixes.edits import Edit, ParsedSource
from dynadiag.fixes.rewrites.branch_statement import CONDITION
from dynadiag.fixes.rewrites.conditions import Unsuitable, condition_text
from dynadiag.fixes.rewrites.effect_function import AFTER, WITHIN, EffectFunction, formatted, values_of
from dynadiag.fixes.rewrites.number_attributes import counters
from dynadiag.fixes.rewrites.side_effects import is_effect, name_of, split_effects
from dynadiag.recording.records import Span

__all__ = ["candidates"]

_WHY = "the condition and the values are computed at their place, and the message is printed when they are there"
_WHY_RAISE = "the condition is computed at its place, and the exception is raised there"
_WHY_RAISE_LATER = "the condition is computed at its place, and the exception is raised when the graph has run"


def candidates(site: Site[cst.If | cst.IfExp | cst.Assert]) -> Iterator[Candidate]:
    """The function, and its call in place of the effects of an `if`, or of the `assert`."""
    file, found = site.file, site.node
    with suppress(Unsuitable):
        if isinstance(found, cst.Assert):
            yield from _of_assertion(file, found)
        elif isinstance(found, cst.If):
            yield from _of_branch(file, found, site.problem.span)


def _of_assertion(file: ParsedSource, found: cst.Assert) -> Iterator[Candidate]:
    line, function = file.parent(found), file.enclosing(found, cst.FunctionDef)
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) > 1 or not isinstance(function, cst.FunctionDef):
        return
    made, condition = EffectFunction(file, function), f"torch.logical_not({condition_text(file, found.test)})"
    if found.msg is None:
        made.sides[0].append("raise AssertionError")
    else:
        made.add(0, found.msg, formatted(found.msg), "raise AssertionError({})")

    def written(call: str) -> Edit:
        return file.replace_lines(line, line, f"{file.indent(line)}{call.replace(CONDITION, condition)}{file.newline}")

    yield from _calls(made, line, "raise", written, (Condition(file.name, *file.range(found.test)),))


def _of_branch(file: ParsedSource, found: cst.If, span: Span) -> Iterator[Candidate]:
    statement, made = split_effects(file, found, span, lambda each: is_effect(file, each))
    for side, effects in enumerate(each.effects for each in statement.sides):
        for effect in effects:
            made.add(side, effect, values_of(effect))
    conditions = tuple(Condition(file.name, *file.range(test)) for test in statement.tests)
    state = counters(file, found, statement.state)
    yield from _calls(made, found, name_of(statement), statement.edit, conditions, state)


def _calls(
    made: EffectFunction,
    at: cst.CSTNode,
    what: str,
    written: Callable[[str], Edit],
    both: tuple[Condition, ...],
    state: tuple[tuple[Edit, ...], tuple[str, ...]] = ((), ()),
) -> Iterator[Candidate]:
    """Both ways of torch's to call the function. An exception is raised in the graph, or else after it."""
    name = made.file.free_name(f"_{what}_if", of=at)
    for way in (WITHIN, AFTER) if what == "raise" else (AFTER, WITHIN):
        verb = "raise" if what == "raise" else "print"
        title = f"{verb} on the condition in a function of its own, which torch {way.when}"
        why = (_WHY_RAISE if way is WITHIN else _WHY_RAISE_LATER) if what == "raise" else _WHY
        edits = (made.definition(name, way), written(made.call(name, CONDITION)), *state[0])
        yield Candidate(title, "source", edits, why, both, state[1])
