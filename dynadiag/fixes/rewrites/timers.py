"""A clock that a compiled function reads at its first and at its last statement: read around its call.

This is right where the function is called at one place: both readings have the same work between them then. What the
last statement does with the difference (a total, a list, a message), it does behind the call.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from dynadiag.fixes.candidate import Candidate, Site
from dynadiag.fixes.edits import Edit, ParsedSource
from dynadiag.fixes.rewrites.call_sites import CallSite, call_sites
from dynadiag.fixes.rewrites.effect_function import local_names

_CLOCK = re.compile(r"^(?:time\.)?(?:(?:perf_counter|monotonic|process_time|thread_time|time)(?:_ns)?)$")


_AT_HAND = (cst.Name, cst.Attribute, cst.BaseNumber, cst.BaseString)


@dataclass(frozen=True, slots=True)
class _Timed:
    """The first statement of a function, which reads a clock, and the last, which uses the difference."""

    first: cst.SimpleStatementLine
    last: cst.SimpleStatementLine
    name: str  # of what the clock said first


def candidates(site: Site[cst.Call]) -> Iterator[Candidate]:
    """The function without the clock, and its call between two readings."""
    file, call = site.file, site.node
    function = file.enclosing(call, cst.FunctionDef)
    if not isinstance(function, cst.FunctionDef) or not _is_clock(file, call):
        return
    timed = _timed(file, function)
    for caller in call_sites(site.problem, site.sources, []) if timed is not None else ():
        if timed is not None and caller.file.name == file.name and _is_only_call(caller):
            yield Candidate(
                f"read `{file.code(call)}` around the call",
                "source",
                (
                    file.replace_lines(timed.first, timed.first, ""),
                    file.replace_lines(timed.last, timed.last, ""),
                    _around(caller, timed),
                ),
                "the same work is between the two readings, and what is made of them is made behind the call",
            )


def _is_clock(file: ParsedSource, call: cst.Call) -> bool:
    return _CLOCK.match(file.code(call.func)) is not None and not call.args


def _timed(file: ParsedSource, function: cst.FunctionDef) -> _Timed | None:
    """The two statements, if the last one uses nothing else that the function computes, and is all but the last."""
    lines = list(function.body.body)
    if function.get_docstring() is not None:
        del lines[0]
    returned = _only(lines[-1]) if lines else None
    if isinstance(returned, cst.Return):
        del lines[-1]
    clocks = [each for each in file.nodes(cst.Call, function) if _is_clock(file, each)]
    early = [each for each in file.nodes(cst.Return, function) if each is not returned]
    if len(lines) < 3 or len(clocks) != 2 or early or (returned is not None and not _is_ready(returned)):
        return None
    first, last = lines[0], lines[-1]
    begun, used = _only(first), _only(last)
    if not isinstance(begun, cst.Assign) or begun.value is not clocks[0] or len(begun.targets) != 1 or used is None:
        return None
    name, target = begun.targets[0].target, used.target if isinstance(used, cst.AugAssign) else None
    uses = [node for node in file.nodes(cst.Name, function) if node.value == getattr(name, "value", None)]
    inside = [node for node in uses if node in set(file.nodes(cst.Name, last))]
    alone = isinstance(name, cst.Name) and len(uses) == len(inside) + 1 and clocks[1] in set(file.nodes(cst.Call, last))
    local = {*local_names(file, function), *([target.value] if isinstance(target, cst.Name) else [])}
    others = {node.value for node in file.nodes(cst.Name, last)} & local - {"self", getattr(name, "value", "")}
    if not alone or others or not isinstance(used, (cst.Assign, cst.AugAssign, cst.Expr)):
        return None
    assert isinstance(first, cst.SimpleStatementLine)
    assert isinstance(last, cst.SimpleStatementLine)
    assert isinstance(name, cst.Name)
    return _Timed(first, last, name.value)


def _only(line: cst.CSTNode) -> cst.BaseSmallStatement | None:
    """The statement of a line that has one."""
    return line.body[0] if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else None


def _is_ready(returned: cst.BaseSmallStatement) -> bool:
    """Whether a function computes nothing more when it returns."""
    if not isinstance(returned, cst.Return):
        return True
    value = returned.value
    parts = [each.value for each in value.elements] if isinstance(value, cst.Tuple) else [value]
    return all(part is None or isinstance(part, cst.Name) for part in parts)


def _is_only_call(site: CallSite) -> bool:
    """Whether the function, and the module that it is made of, are called here alone."""
    file, function = site.file, site.call.func
    starred = any(each.star for each in site.call.args)
    if starred or not isinstance(function, cst.Name) or function.value in dir(builtins):
        return False
    uses = [node for node in file.nodes(cst.Name) if node.value == function.value]
    made = [each for each in file.nodes(cst.Assign) if file.code(each.targets[0].target) == function.value]
    if len(uses) != 2 or len(made) > 1:
        return False
    compiled = made[0].value if made else None
    original = compiled.args[0].value if isinstance(compiled, cst.Call) and compiled.args else None
    if compiled is not None and not (isinstance(original, cst.Name) and _is_held(file, original)):
        return False
    return compiled is not None or any(each.name.value == function.value for each in file.nodes(cst.FunctionDef))


def _is_held(file: ParsedSource, name: cst.Name) -> bool:
    """Whether a name is assigned once, and used besides here only for attributes: nobody else calls what it names."""
    others = [node for node in file.nodes(cst.Name) if node.value == name.value and node is not name]
    targets = [node for node in others if isinstance(file.parent(node), cst.AssignTarget)]
    held = [
        parent for node in others if isinstance(parent := file.parent(node), cst.Attribute) and parent.value is node
    ]
    return len(targets) == 1 and len(held) == len(others) - 1 and all(each.attr.value != "forward" for each in held)


def _around(site: CallSite, timed: _Timed) -> Edit:
    """The readings around the call. Its arguments are computed before the first one."""
    file, call, end = site.file, site.call, site.file.newline
    statement = file.statement(call)
    indent, only = file.indent(statement), _only(statement)
    name = file.free_name(timed.name, "began", inside=file.enclosing(call, cst.FunctionDef))
    first = re.sub(rf"\b{timed.name}\b", name, file.code(timed.first).strip(), count=1)
    last = re.sub(r"\bself\b", file.code(call.func), file.code(timed.last).strip())
    last = re.sub(rf"\b{timed.name}\b", name, last)
    computed = [each.value for each in call.args if not isinstance(each.value, _AT_HAND)]
    names = [file.free_name("argument", "value", of=value) for value in computed]
    before = [f"{own} = {file.code(value)}" for own, value in zip(names, computed, strict=True)]
    made = _with_text(file, call, list(zip(computed, names, strict=True)))
    if isinstance(only, (cst.Assign, cst.Expr)) and only.value is call:
        lines = [*before, first, _with_text(file, statement, [(call, made)]), last]
    else:
        result = file.free_name("result", "output", of=call)
        lines = [*before, first, f"{result} = {made}", last, _with_text(file, statement, [(call, result)])]
    return file.replace_lines(statement, statement, "".join(f"{indent}{line}{end}" for line in lines))


def _with_text(file: ParsedSource, node: cst.CSTNode, texts: list[tuple[cst.CSTNode, str]]) -> str:
    """The text of a node with other texts in the place of nodes inside it."""
    start, text = file.range(node)[0], file.code(node)
    for inner, other in reversed(texts):
        place = file.range(inner)
        text = f"{text[: place[0] - start]}{other}{text[place[1] - start :]}"
    return text
