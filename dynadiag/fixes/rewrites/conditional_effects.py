"""`if` on a tensor's value with an effect on a side, and `assert`: a function of the module that has the effects, and
that torch calls after the graph, or in it. What the sides compute besides is chosen with `torch.where`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import libcst as cst

from dynadiag.fixes.candidate import Candidate, Condition, Site
from dynadiag.fixes.edits import Edit, ParsedSource, callee_name
from dynadiag.fixes.rewrites.branch_statement import CONDITION, BranchStatement
from dynadiag.fixes.rewrites.conditions import Unsuitable, condition_text, position_of
from dynadiag.fixes.rewrites.effect_function import EffectFunction, formatted, values_of
from dynadiag.fixes.rewrites.effect_ways import AFTER, WITHIN
from dynadiag.fixes.rewrites.effects import EFFECTS
from dynadiag.fixes.rewrites.number_attributes import counters
from dynadiag.fixes.rewrites.printing import prints
from dynadiag.recording.records import Span


def split_effects(
    file: ParsedSource, found: cst.If, span: Span, chosen: Callable[[cst.CSTNode], bool]
) -> tuple[BranchStatement, EffectFunction]:
    """The `if` without the chosen effects, and the function for these. Raises `Unsuitable` where it has none."""
    if isinstance(found.orelse, cst.If):
        raise Unsuitable("it has an `elif`")
    statement = BranchStatement(file, found, position_of(file, span), chosen)
    function = file.enclosing(found, cst.FunctionDef)
    if not any(side.effects for side in statement.sides) or not isinstance(function, cst.FunctionDef):
        raise Unsuitable("it has no effect")
    return statement, EffectFunction(file, function)


def is_effect(file: ParsedSource, statement: cst.CSTNode) -> bool:
    """Whether a statement prints, keeps, sends or raises."""
    if isinstance(statement, cst.Raise):
        return statement.exc is not None and statement.cause is None
    call = statement.value if isinstance(statement, cst.Expr) else None
    if not isinstance(call, cst.Call):
        return False
    method = isinstance(call.func, cst.Attribute) and EFFECTS.match(callee_name(call) or "") is not None
    return method or prints(file, call)


def name_of(statement: BranchStatement) -> str:
    """What the effects do, for the name of their function. An exception counts most, then the first call."""
    effects = [effect for side in statement.sides for effect in side.effects]
    calls = [effect.value for effect in effects if isinstance(effect, cst.Expr)]
    names = [(callee_name(call) or "").strip("_") for call in calls if isinstance(call, cst.Call)]
    raised = any(isinstance(effect, cst.Raise) for effect in effects)
    return "raise" if raised else next(filter(None, names), "count")


_WHY_OBJECT = "torch runs the statements as they are, at their place in the graph, and nothing in it depends on them"


def object_candidates(site: Site[cst.If | cst.IfExp]) -> Iterator[Candidate]:
    """An effect on the object (`self.spikes += 1`, `self.seen.append(x)`): all effects of both sides, as they are, in a
    function that gets the object, and that torch runs in the graph.

    This is right where nothing in the graph depends on what the effects change: they run at their place among the
    operators, once for each call. Code that torch compiled reads the object as it was. The proof compares what is kept.
    """
    file, found = site.file, site.node
    if not isinstance(found, cst.If):
        return
    with suppress(Unsuitable):
        statement, made = split_effects(file, found, site.problem.span, lambda each: is_effect_on_object(file, each))
        for side, effects in enumerate(each.effects for each in statement.sides):
            for effect in effects:
                made.add_whole(side, effect)
        check_unread(file, made.function, [effect for each in statement.sides for effect in each.effects])
        if "self" in made.arguments:
            name = file.free_name(f"_{name_of(statement)}_if", of=found)
            definition, call = made.written(name, WITHIN, CONDITION)
            edits = *definition, statement.edit(call)
            both = tuple(Condition(file.name, *file.range(test)) for test in statement.tests)
            title = f"run what is done on the condition in a function of its own, which torch {WITHIN.when}"
            yield Candidate(title, "source", edits, _WHY_OBJECT, both)


def is_effect_on_object(file: ParsedSource, statement: cst.CSTNode) -> bool:
    """Whether a statement has an effect, or changes an attribute of the object by a number."""
    return is_effect(file, statement) or _changed_attribute(file, statement) is not None


def _changed_attribute(file: ParsedSource, statement: cst.CSTNode) -> str | None:
    """The attribute of the object that a statement changes by a number: `self.count` of `self.count += 1`."""
    if not isinstance(statement, cst.AugAssign) or not isinstance(statement.value, (cst.Integer, cst.Float)):
        return None
    text = file.code(statement.target)
    return text if text.startswith("self.") else None


def check_unread(file: ParsedSource, function: cst.FunctionDef, effects: list[cst.CSTNode]) -> None:
    """Raises where the function reads an attribute that an effect changes: torch has the value from before."""
    changed, places = {_changed_attribute(file, effect) for effect in effects}, list(map(file.range, effects))
    for read in file.nodes(cst.Attribute, function):
        place = file.range(read)[0]
        if file.code(read) in changed and not any(first <= place < last for first, last in places):
            raise Unsuitable(f"`{file.code(read)}` is read in the graph")


_WHY = "the condition and the values are computed at their place, and the message is printed when they are there"
_WHY_RAISE = "the condition is computed at its place, and the exception is raised there"
_WHY_ASSERT = (
    "it is the same condition, and an `assert` on a tensor is an operator of the graph (`torch._assert_async`)"
)
_WHY_RAISE_LATER = "the condition is computed at its place, and the exception is raised when the graph has run"


def candidates(site: Site[cst.If | cst.IfExp | cst.Assert]) -> Iterator[Candidate]:
    """What prints, warns, logs, raises or keeps a value: a function that takes the condition, in place of the effects.

    This is right because the condition and the values of the message are computed where they were, and only the effect
    waits; in the graph it does not wait. The proof compares both streams, what is kept, and the exceptions with what
    was changed before, and has to see both sides.
    """
    file, found = site.file, site.node
    with suppress(Unsuitable):
        if isinstance(found, cst.Assert):
            yield from _of_assertion(file, found)
        elif isinstance(found, cst.If):
            yield from _of_branch(file, found, site.problem.span)


def assertions(site: Site[cst.Assert]) -> Iterator[Candidate]:
    """An `assert` of a condition that is one tensor: torch takes it into the graph, if its message is a constant."""
    file, found = site.file, site.node
    with suppress(Unsuitable):
        test = condition_text(file, found.test)
        if test != file.code(found.test) and isinstance(
            found.msg, (cst.SimpleString, cst.ConcatenatedString, type(None))
        ):
            edits = (file.replace(found.test, f"({test})" if "\n" in test else test),)
            yield Candidate("assert the condition as one tensor", "source", edits, _WHY_ASSERT)


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
    sides = (False,) if _only_raises(file, statement, found) else (True, False)
    conditions = tuple(Condition(file.name, *file.range(test), sides=sides) for test in statement.tests)
    state = counters(file, found, statement.state)
    yield from _calls(made, found, name_of(statement), statement.edit, conditions, state)


def _only_raises(file: ParsedSource, statement: BranchStatement, found: cst.If) -> bool:
    """Whether the branch is a check of inputs: it raises and does nothing else, and its function has written to nothing
    before. Where no input that is tried fails the check, what the program does is what it did.
    """
    taken, other = statement.sides
    raises = len(taken.effects) == 1 and isinstance(taken.effects[0], cst.Raise) and not taken.assigned
    function, before = file.enclosing(found, cst.FunctionDef), file.range(found)[0]
    kinds = (cst.Assign, cst.AugAssign, cst.Call)
    earlier = [each for kind in kinds for each in file.nodes(kind, function) if file.range(each)[0] < before]
    return raises and not other.effects and not other.assigned and not any(map(_writes, earlier))


def _writes(node: cst.CSTNode) -> bool:
    """Whether a statement or a call may change a tensor or an object that the caller has."""
    if isinstance(node, cst.Call):
        return (callee_name(node) or "").endswith("_")
    targets = [each.target for each in node.targets] if isinstance(node, cst.Assign) else []
    return isinstance(node, cst.AugAssign) or any(isinstance(each, (cst.Subscript, cst.Attribute)) for each in targets)


def _calls(
    made: EffectFunction,
    at: cst.CSTNode,
    what: str,
    written: Callable[[str], Edit],
    both: tuple[Condition, ...],
    state: tuple[tuple[Edit, ...], tuple[str, ...]] = ((), ()),
) -> Iterator[Candidate]:
    """Both ways of torch's to call the function. An exception is raised in the graph, or else after it, where the proof
    has to see it.
    """
    name = made.file.free_name(f"_{what}_if", of=at)
    for way in (WITHIN, AFTER) if what == "raise" else (AFTER, WITHIN):
        verb = "raise" if what == "raise" else "print"
        title = f"{verb} on the condition in a function of its own, which torch {way.when}"
        why = (_WHY_RAISE if way is WITHIN else _WHY_RAISE_LATER) if what == "raise" else _WHY
        definition, call = made.written(name, way, CONDITION)
        edits = (*definition, written(call), *state[0])
        conditions = both if way is WITHIN else tuple(replace(each, sides=(True, False)) for each in both)
        yield Candidate(title, "source", edits, why, conditions, state[1])
