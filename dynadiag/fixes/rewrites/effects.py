"""A statement that is only made for its effect (a value is kept in a list, written or sent): a function of the module
that torch runs in the graph as it is.

This is right where nothing in the compiled function depends on the effect: the statement runs at its place among the
operators, once for each call. What Python has changed before it in the same call is not there yet, and what it changes
is not known to the code behind it. The proof compares results, state and output.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from dynadiag.fixes.candidate import Candidate, Sources
from dynadiag.fixes.edits import callee_name
from dynadiag.fixes.problems import FixProblem
from dynadiag.fixes.rewrites.effect_function import local_names
from dynadiag.fixes.rewrites.printing import prints

__all__ = ["EFFECTS", "candidates"]

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
    call = file.at(span, cst.Call) if file is not None and span is not None else None
    line = file.statement(call) if file is not None and call is not None else None
    function = file.enclosing(line, cst.FunctionDef) if file is not None and line is not None else None
    if file is None or not isinstance(line, cst.SimpleStatementLine) or not isinstance(function, cst.FunctionDef):
        return
    effect = line.body[0].value if len(line.body) == 1 and isinstance(line.body[0], cst.Expr) else None
    if not isinstance(effect, cst.Call) or prints(file, effect) or not file.imports("torch"):
        return
    if file.enclosing(function, cst.FunctionDef) is not None:
        return
    called = callee_name(effect) or ""
    if not EFFECTS.match(called):
        return
    name = file.free_name(f"_{called.strip('_')}", of=line)
    used = {node.value for node in file.nodes(cst.Name, line)}
    given = ", ".join(each for each in local_names(file, function) if each in used)
    text, end, unit = file.code(effect), file.newline, file.indent_unit
    made = f"@torch._dynamo.decorators.leaf_function\ndef {name}({given}):\n{unit}{text}\n\n\n"
    fake = f"@{name}.register_fake\ndef _(*_):\n{unit}return None\n\n\n"
    if "\n" not in text:
        yield Candidate(
            f"run `{called}` in the graph, by the function `{name}`",
            "source",
            (
                file.insert_line(file.line_above(function), f"{made}{fake}".replace("\n", end)),
                file.replace(effect, f"{name}({given})"),
            ),
            "torch runs the statement as it is, at its place in the graph, and nothing in the function depends on it",
        )
