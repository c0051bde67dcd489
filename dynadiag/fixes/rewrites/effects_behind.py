"""The statements of a compiled function that only print, keep or send, behind its call: the compiled part returns the
values that they show, and another function makes the call and then the effects. So for effects on a tensor's condition,
and for a number of a tensor that is kept in an object.

Right where nothing behind an effect in the function depends on it, and the function does not end before: the values are
computed at their place, and the effects are made in their order. This is what is left where torch takes no function in
the graph (Inductor does not) and calls none with an object behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import libcst as cst

from dynadiag.fixes.candidate import Candidate, Condition, Sources
from dynadiag.fixes.edits import Edit, ParsedSource
from dynadiag.fixes.problems import FixProblem
from dynadiag.fixes.rewrites.branch_statement import CONDITION
from dynadiag.fixes.rewrites.compiled_methods import CompiledPart, compiled_part, plain_parameters
from dynadiag.fixes.rewrites.conditional_effects import check_unread, is_effect, is_effect_on_object, split_effects
from dynadiag.fixes.rewrites.conditions import Unsuitable, if_around
from dynadiag.fixes.rewrites.effect_function import EffectFunction, local_names, read_as_numbers, values_of
from dynadiag.fixes.rewrites.printing import prints
from dynadiag.recording.records import Span

_WHY = "the values are computed at their place, and nothing in the function depends on what is done with them"


@dataclass(frozen=True, slots=True)
class _Function:
    """A compiled function with one `return`, at its end, and the effects among its statements: lines, and an `if`."""

    file: ParsedSource
    node: cst.FunctionDef
    effects: Sequence[cst.SimpleStatementLine | cst.If]
    result: cst.Return
    span: Span


def candidates(problem: FixProblem, sources: Sources) -> Iterator[Candidate]:
    """The function without its effects, and the one that makes them."""
    return _behind(problem, sources, assigned=False)


def kept_numbers(problem: FixProblem, sources: Sources) -> Iterator[Candidate]:
    """The same of a number of a tensor that is kept in an object, with the other effects of the function."""
    return _behind(problem, sources, assigned=True)


def _behind(problem: FixProblem, sources: Sources, *, assigned: bool) -> Iterator[Candidate]:
    span = problem.span if problem.kind == "break" else problem.guarded
    file = sources.file(problem.file if problem.kind == "break" else span.file if span is not None else None)
    if file is None or span is None:
        return
    branch, call = if_around(file, span) if problem.kind == "break" else None, file.at(span, cst.Call)
    here = branch if isinstance(branch, cst.If) else file.statement(call) if call is not None else None
    fits = here is not None and _is_assignment(here) == assigned and (here is branch or not isinstance(here, cst.If))
    found = _function_around(file, here, span) if here is not None and fits else None
    compiled = compiled_part(found.file, found.node, sources) if found is not None else None
    if found is None or compiled is None:
        return
    what, do = ("kept", "keep") if assigned else ("shown", "show")
    title = f"return the values that are {what}, and {do} them behind the call"
    silent = [each for each in found.effects if not _prints(file, each)]  # another change may be for the others
    for effects in (found.effects, silent if 0 < len(silent) < len(found.effects) else ()):
        if any(each is here for each in effects):
            with suppress(Unsuitable):
                edits = *_without_effects(replace(found, effects=effects), compiled), *compiled.more
                tests = [here.test] if isinstance(here, cst.If) else []
                both = tuple(Condition(file.name, *file.range(test)) for test in tests)
                yield Candidate(title, "source", edits, _WHY, both, whole_calls=(found.node.name.value,))
                title = f"{title}, but for what is printed"


def _prints(file: ParsedSource, line: cst.SimpleStatementLine | cst.If) -> bool:
    effect = line.body[0] if isinstance(line, cst.SimpleStatementLine) else line
    return isinstance(effect, cst.Expr) and isinstance(effect.value, cst.Call) and prints(file, effect.value)


def _function_around(file: ParsedSource, here: cst.CSTNode, span: Span) -> _Function | None:
    node = file.enclosing(here, cst.FunctionDef)
    if not isinstance(node, cst.FunctionDef) or not isinstance(node.body, cst.IndentedBlock):
        return None
    lines = [each for each in node.body.body if isinstance(each, cst.SimpleStatementLine) and len(each.body) == 1]
    results = list(file.nodes(cst.Return, node))
    last = lines[-1].body[0] if lines and lines[-1] is node.body.body[-1] else None
    plain = plain_parameters(node) is not None and next(file.nodes(cst.Yield, node), None) is None
    if not plain or not isinstance(last, cst.Return) or results != [last] or last.value is None:
        return None
    if any(name.value.startswith("value_") for name in file.nodes(cst.Name, node)):
        return None
    effects: list[cst.SimpleStatementLine | cst.If] = [each for each in lines if is_effect(file, each.body[0])]
    effects += _assigned(file, node, lines)
    effects += [here] if isinstance(here, cst.If) and file.parent(here) is node.body else []
    effects.sort(key=file.line)
    return _Function(file, node, effects, last, span)


def _is_assignment(line: cst.CSTNode) -> bool:
    return isinstance(line, cst.SimpleStatementLine) and isinstance(line.body[0], cst.Assign)


def _assigned(
    file: ParsedSource, node: cst.FunctionDef, lines: Sequence[cst.SimpleStatementLine]
) -> Iterator[cst.SimpleStatementLine]:
    """The lines that keep a number of a tensor in an object, `self.seen["mean"] = x.mean().item()`, which the function
    does not use otherwise.
    """
    for line in lines:
        statement = line.body[0]
        target = statement.targets[0].target if isinstance(statement, cst.Assign) else None
        holder = target.value if isinstance(target, cst.Subscript) and _is_constant(target) else target
        if not isinstance(statement, cst.Assign) or not isinstance(holder, cst.Attribute) or len(statement.targets) > 1:
            continue
        uses = [each for each in file.nodes(cst.Attribute, node) if file.code(each) == file.code(holder)]
        if len(uses) == 1 and any(True for _ in read_as_numbers(file, statement.value)):
            yield line


def _is_constant(target: cst.Subscript) -> bool:
    index = target.slice[0].slice if len(target.slice) == 1 else None
    return isinstance(index, cst.Index) and isinstance(index.value, (cst.SimpleString, cst.Integer))


def _without_effects(found: _Function, part: CompiledPart) -> Iterator[Edit]:
    """The compiled part under another name, and the function behind it."""
    file, node, end = found.file, found.node, found.file.newline
    parameters = [each.name.value for each in node.params.params]
    made = EffectFunction(file, node, kept=_unchanged(file, node, parameters))
    for line in found.effects:
        if isinstance(line, cst.If):
            yield _without_branch(found, line, made)
            continue
        before = len(made.arguments)
        made.add(0, line.body[0], [each for each in values_of(line.body[0]) if _root(each) not in made.kept])
        new = list(made.arguments.items())[before:]
        text = "".join(f"{file.indent(line)}{value} = {text}{end}" for value, text in new)
        yield file.replace_lines(line, line, text)
    values = ", ".join(made.arguments)
    inner = file.free_name("result", inside=node)
    assert found.result.value is not None
    code = file.code(found.result.value)
    code = f"({code})" if isinstance(found.result.value, cst.Tuple) and not found.result.value.lpar else code
    yield file.replace(found.result, f"return {code}, {values}" if values else file.code(found.result))
    given = ", ".join(each for each in parameters if each != "self")
    lines = [
        f"{', '.join(filter(None, [inner, values]))} = {part.called}({given})",
        *made.sides[0],
        f"return {inner}",
    ]
    yield from part.around(file, node, lines)


def _without_branch(found: _Function, branch: cst.If, made: EffectFunction) -> Edit:
    """What the sides of a branch compute, and its condition as a value; its effects are made behind the call."""
    file, name, inside = found.file, f"value_{len(made.arguments) + 1}", made.sides[0]
    statement, _ = split_effects(file, branch, found.span, lambda each: is_effect_on_object(file, each))
    if statement.tests != [branch.test]:
        raise Unsuitable("its condition has a part that decides by itself")
    effects = [each.effects for each in statement.sides]
    check_unread(file, found.node, [*effects[0], *effects[1]])
    made.arguments[name] = CONDITION
    before, start = len(made.arguments), len(inside)
    for side, head in enumerate((f"if {name}:", "else:" if effects[0] else f"if not {name}:")):
        inside += [head] if effects[side] else []
        for effect in effects[side]:
            made.add(0, effect, [each for each in values_of(effect) if _root(each) not in made.kept])
            inside[-1] = f"{file.indent_unit}{inside[-1]}"
    if any(isinstance(effect, cst.Raise) for effect in [*effects[0], *effects[1]]) or start == len(inside):
        raise Unsuitable("it raises")
    given = [(name, CONDITION), *list(made.arguments.items())[before:]]
    return statement.edit(f"{file.newline}{file.indent(branch)}".join(f"{value} = {text}" for value, text in given))


def _root(value: cst.BaseExpression) -> str | None:
    """The name that a value is, or is an attribute of."""
    while isinstance(value, cst.Attribute):
        value = value.value
    return value.value if isinstance(value, cst.Name) else None


def _unchanged(file: ParsedSource, node: cst.FunctionDef, parameters: Sequence[str]) -> frozenset[str]:
    """The parameters that no statement assigns: the function behind has the same."""
    targets = [each.target for each in file.nodes(cst.AssignTarget, node)]
    plain = [each for each in targets if not isinstance(each, (cst.Attribute, cst.Subscript))]
    assigned = {name.value for each in plain for name in file.nodes(cst.Name, each)}
    added = {file.code(each.target) for each in file.nodes(cst.AugAssign, node)}
    return frozenset(parameters) & frozenset(local_names(file, node)) - assigned - added
