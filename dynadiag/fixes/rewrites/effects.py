"""A statement that is only made for its effect (a value is kept in a list, written or sent): a function of the module
that torch runs in the graph as it is, or calls after it with the values. So is a function that returns nothing, such as
a hook that notes what it is given.

This is right where nothing in the compiled function depends on the effect: the statement runs at its place among the
operators, once for each call. What Python has changed before it in the same call is not there yet, and what it changes
is not known to the code behind it. The proof compares results, state and output.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

import libcst as cst

from dynadiag.fixes.candidate import Candidate, Sources
from dynadiag.fixes.edits import ParsedSource, callee_name
from dynadiag.fixes.problems import FixProblem
from dynadiag.fixes.rewrites.conditions import Unsuitable
from dynadiag.fixes.rewrites.effect_function import (
    EffectFunction,
    local_names,
    operator_of,
    read_as_numbers,
    values_of,
)
from dynadiag.fixes.rewrites.effect_ways import AFTER, WITHIN
from dynadiag.fixes.rewrites.printing import prints

_WHY = "torch runs the statement as it is, at its place in the graph, and nothing in the function depends on it"
_WHY_WHOLE = "it returns nothing, and torch runs it as it is, at its place in the graph"
_LATER = "the values are computed at their place, and nothing in the function depends on what is done with them"

# What keeps, writes or sends. Others may compute with tensors, and nothing in such a function is compiled.
EFFECTS = re.compile(
    r"^(?:append(?:left)?|extend|insert|add|update|put(?:_nowait)?|push|write(?:lines|row)?|flush|send|emit|notify|publish"
    r"|record|track|observe|report|log\w*|debug|info|warn(?:ing)?|error|exception|critical|collect|sleep"
    r"|add_(?:scalars?|histogram|text|image|event)|set_(?:postfix|description)\w*)$"
)


def candidates(problem: FixProblem, sources: Sources) -> Iterator[Candidate]:
    """The function, and its call in place of the statement at the break, or of the one that a guard is for."""
    span = problem.span if problem.kind == "break" else problem.guarded
    file = sources.file(problem.file if problem.kind == "break" else span.file if span is not None else None)
    if file is None or span is None:
        return
    found = file.at(span, cst.Call) or file.at(span, cst.SimpleStatementLine)
    line = file.statement(found) if found is not None else None
    function = file.enclosing(line, cst.FunctionDef) if line is not None else None
    if not isinstance(line, cst.SimpleStatementLine) or not isinstance(function, cst.FunctionDef):
        return
    effect = line.body[0].value if len(line.body) == 1 and isinstance(line.body[0], cst.Expr) else None
    if file.enclosing(function, cst.FunctionDef) is not None:
        return
    called = callee_name(effect) or "" if isinstance(effect, cst.Call) else ""
    if isinstance(effect, cst.Call) and prints(file, effect):
        reads = any(True for _ in read_as_numbers(file, effect))
        yield from _after(file, function, effect, called) if reads and problem.kind == "break" else ()
    elif isinstance(effect, cst.Call) and (EFFECTS.match(called) or _notes_a_number(file, effect)):
        yield from _within(file, function, effect, called)
        yield from _after(file, function, effect, called)
    if function in file.module.body and _has_only_effects(file, function):
        for around, call in _calls(file, function) if problem.kind == "recompile" else ():
            yield from _within(file, around, call, function.name.value)
        yield _whole(file, function)


def _calls(file: ParsedSource, called: cst.FunctionDef) -> Iterator[tuple[cst.FunctionDef, cst.Call]]:
    """The statements of functions that note a number by this function, each with the function around it."""
    for call in file.nodes(cst.Call):
        around = file.enclosing(call, cst.FunctionDef)
        if (
            isinstance(around, cst.FunctionDef)
            and isinstance(file.parent(call), cst.Expr)
            and _notes(file, call, called)
        ):
            yield around, call


def _within(file: ParsedSource, function: cst.FunctionDef, effect: cst.Call, called: str) -> Iterator[Candidate]:
    """The statement as it is, in a function that torch runs in the graph."""
    name = _name(file, effect, called)
    if name is not None:
        made = operator_of(file, function, effect)
        if made is None:
            made = EffectFunction(file, function, conditional=False)
            made.add_whole(0, effect)
        definition, call = made.written(name, WITHIN)
        edits = *definition, file.replace(effect, call)
        yield Candidate(f"run `{called}` in the graph, by the function `{name}`", "source", edits, _WHY)


def _after(file: ParsedSource, function: cst.FunctionDef, effect: cst.Call, called: str) -> Iterator[Candidate]:
    """The statement in a function that torch calls after the graph with what it shows or keeps."""
    name = _name(file, effect, called)
    with suppress(Unsuitable):
        made = EffectFunction(file, function, conditional=False)
        made.add(0, effect, values_of(effect))
        if name is not None:
            definition, call = made.written(name, AFTER)
            edits = *definition, file.replace(effect, call)
            title = f"let torch call `{called}` after the graph, by the function `{name}`"
            yield Candidate(title, "source", edits, _LATER)


def _name(file: ParsedSource, effect: cst.Call, called: str) -> str | None:
    """The name of the function; ``None`` for a statement of several lines."""
    return None if "\n" in file.code(effect) else file.free_name(f"_{called.strip('_')}", of=file.statement(effect))


def _notes_a_number(file: ParsedSource, effect: cst.Call) -> bool:
    """Whether it calls a function of the module, which only has effects, with a number that is read out of a tensor."""
    own = [each for each in file.module.body if isinstance(each, cst.FunctionDef)]
    return any(_notes(file, effect, each) and _has_only_effects(file, each) for each in own)


def _notes(file: ParsedSource, call: cst.Call, called: cst.FunctionDef) -> bool:
    """Whether it calls this function by its name, with a number that is read out of a tensor."""
    by_name = isinstance(call.func, cst.Name) and call.func.value == called.name.value
    return by_name and any(True for _ in read_as_numbers(file, call))


def _has_only_effects(file: ParsedSource, function: cst.FunctionDef) -> bool:
    """Whether a function returns nothing and writes to no tensor that it is given, by the look of it."""
    results = any(each.value is not None for each in file.nodes(cst.Return, function))
    in_place = any((callee_name(call) or "").endswith("_") for call in file.nodes(cst.Call, function))
    targets = [each.target for each in file.nodes(cst.AssignTarget, function)]
    added = [each.target for each in file.nodes(cst.AugAssign, function)]
    items = any(
        isinstance(each, cst.Subscript) and not _is_of_module(file, function, each) for each in [*targets, *added]
    )
    changed = any(isinstance(each, cst.Name) for each in added)
    compiled = any(file.code(call.args[0].value) == function.name.value for call in _compiles(file))
    other = function.decorators or function.asynchronous or next(file.nodes(cst.Yield, function), None)
    return not (results or in_place or items or changed or compiled or other)


def _is_of_module(file: ParsedSource, function: cst.FunctionDef, item: cst.BaseExpression) -> bool:
    """Whether the item is written to a variable of the module, which no call is given."""
    while isinstance(item, (cst.Attribute, cst.Subscript)):
        item = item.value
    return isinstance(item, cst.Name) and item.value not in local_names(file, function)


def _compiles(file: ParsedSource) -> Iterator[cst.Call]:
    yield from (call for call in file.nodes(cst.Call) if callee_name(call) == "compile" and call.args)


def _whole(file: ParsedSource, function: cst.FunctionDef) -> Candidate:
    """The function as it is, with the decorator by which torch runs it in the graph."""
    name = function.name.value
    decorator, edits = WITHIN.decorated(file)
    edits = *edits, file.insert_line(file.line(function), f"{decorator}{file.newline}")
    return Candidate(f"run `{name}` in the graph", "source", edits, _WHY_WHOLE)
