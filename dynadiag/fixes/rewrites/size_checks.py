"""A number of a tensor that slices or sizes something: a symbol of the graph that is known not to be negative.

`capture_scalar_outputs` makes such a number a symbol without a value. torch then cannot decide whether a slice counts
from the end. `torch._check(n >= 0)` says that it does not. Right where the number never is negative: with inputs that
make it so the check raises, and the proof sees that.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
from libcst import matchers as m

from dynadiag.fixes.candidate import Candidate, Site
from dynadiag.fixes.edits import Edit, ParsedSource, callee_name
from dynadiag.fixes.project import is_library
from dynadiag.fixes.rewrites.config_lines import SET_FOR_ALL, config_line
from dynadiag.recording.torch_text.break_types import named_settings

_OPTION = "capture_scalar_outputs"
_SETTING = f"torch._dynamo.config.{_OPTION} = True"


def candidates(site: Site[cst.Call]) -> Iterator[Candidate]:
    """The setting, and a check behind the line that reads the number."""
    file, call = site.file, site.node
    edits = _checked(file, call) if _OPTION in named_settings(site.problem.hints) else ()
    if edits:
        why = "the number becomes a symbol of the graph, and the check tells torch what it always is"
        yield Candidate(
            f"set `{_SETTING}` and check that the number is not negative",
            "source",
            (config_line(file, _SETTING), *edits),
            f"{why}; {SET_FOR_ALL}" if is_library(file.name) else why,
        )


def _checked(file: ParsedSource, call: cst.Call) -> tuple[Edit, ...]:
    """The check of a number, or of each in a list, that is assigned to a name; of a bound of a slice, which gets a name
    first."""
    value = _whole(file, call)
    statement = file.statement(value)
    if not isinstance(statement, cst.SimpleStatementLine):
        return ()
    indent, end = file.indent(statement), file.newline
    assigned = file.parent(value)
    if isinstance(assigned, cst.Assign) and m.matches(assigned, m.Assign(targets=[m.AssignTarget(m.Name())])):
        name = file.code(assigned.targets[0].target)
        check = f"{indent}torch._check({name} >= 0){end}"
        if callee_name(call) == "tolist":
            each = file.free_name("each", "number", "length", of=call)
            check = f"{indent}for {each} in {name}:{end}{indent}{file.indent_unit}torch._check({each} >= 0){end}"
        return (file.insert_line(file.end_line(statement) + 1, check),)
    if not isinstance(assigned, cst.Slice):
        return ()
    name = file.free_name("length", "size", "bound", of=call)
    lines = f"{indent}{name} = {file.code(value)}{end}{indent}torch._check({name} >= 0){end}"
    return file.insert_line(file.line(statement), lines), file.replace(value, name)


def _whole(file: ParsedSource, call: cst.Call) -> cst.Call:
    """The call with a conversion around it: `int(x.item())` of `x.item()`."""
    argument = file.parent(call)
    outer = file.parent(argument) if isinstance(argument, cst.Arg) else None
    return outer if isinstance(outer, cst.Call) and m.matches(outer.func, m.Name("int")) else call
