"""A branch on a tensor that only chooses what a buffer of a module becomes: `torch.where` chooses between both tensors.

    if length > limit:
        if not hasattr(self, "long"):
            self.long = compute()
        self.register_buffer("scale", self.long)
    else:
        self.short = self.short.to(device)
        self.register_buffer("scale", self.short)

Right where the statements before may run on either side: they make once what is kept for later, in an attribute that
only this function uses, and move a tensor to where it already is after the first time. The proof has to see both sides
taken. The buffer has memory of its own then.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence

import libcst as cst
from libcst import matchers as m

from dynadiag.fixes.candidate import Candidate, Condition, Site
from dynadiag.fixes.edits import Edit, ParsedSource
from dynadiag.fixes.rewrites.conditions import Unsuitable, condition_text
from dynadiag.fixes.rewrites.definitions import TRACED, Definition
from dynadiag.fixes.rewrites.effect_function import local_names
from dynadiag.fixes.rewrites.outer_contexts import is_read
from dynadiag.fixes.rewrites.setups import SETUP
from dynadiag.fixes.rewrites.side_expressions import check_expression

_WHY = "both tensors are made anyway, and what is kept for later is made once"
_REGISTERS = m.SimpleStatementLine(
    [m.Expr(m.Call(m.Attribute(attr=m.Name("register_buffer")), [m.Arg(), m.Arg(), m.ZeroOrMore()]))]
)
_SETS = m.SimpleStatementLine([m.Expr(m.Call(m.Name("setattr"), [m.Arg(), m.Arg(), m.Arg(m.Name())]))])
_IS_MISSING = m.UnaryOperation(m.Not(), m.Call(m.Name("hasattr"), [m.Arg(m.Name()), m.Arg()]))
_NAME = re.compile(r"\b[a-zA-Z]\w+\b(?![}({])")
_PLACE = m.Name() | m.Attribute(m.Name(), m.Name())


def candidates(site: Site[cst.If | cst.IfExp]) -> Iterator[Candidate]:
    """The choice, between what both sides do before it and behind it."""
    file, branch = site.file, site.node
    other = branch.orelse
    function = file.enclosing(branch, cst.FunctionDef)
    if not isinstance(branch, cst.If) or not isinstance(other, cst.Else) or not isinstance(function, cst.FunctionDef):
        return
    sides = [_Side(block) for block in (branch.body, other.body)]
    try:
        values = [side.value for side in sides]
        calls = {file.code(side.call).replace(file.code(side.value), "", 1) for side in sides}
        if len(calls) != 1 or {*_places(file, branch.body)} & {*_places(file, other.body)}:
            return
        for side in sides:
            _check(file, side, function)
        chosen = f"torch.where({condition_text(file, branch.test)}, {', '.join(map(file.code, values))})"
    except Unsuitable:
        return
    pad, end = file.indent(branch), file.newline
    edits, lines = _early(file, sides, function)
    lines += [line for side in sides for statement in side.before for line in _lines(file, statement)]
    name = file.free_name("chosen", inside=function)
    lines += [f"{name} = {chosen}", file.code(sides[0].call).replace(file.code(values[0]), name, 1)]
    lines += [line for side in sides for statement in side.behind for line in _lines(file, statement)]
    text = "".join(f"{pad}{line}{end}" for line in lines)
    conditions = (Condition(file.name, *file.range(branch.test)),)
    title = "choose the buffer's tensor with `torch.where`"
    yield Candidate(title, "source", (*edits, file.replace_lines(branch, branch, text)), _WHY, conditions)


class _Side:
    """A side: the call that registers the buffer, and the statements before and behind it."""

    def __init__(self, block: cst.BaseSuite) -> None:
        statements = block.body if isinstance(block, cst.IndentedBlock) else ()
        places = [place for place, each in enumerate(statements) if m.matches(each, _REGISTERS)]
        place = places[0] if len(places) == 1 else len(statements)
        self.before, self.behind = statements[:place], statements[place + 1 :]
        self._call = statements[place] if len(places) == 1 else None

    @property
    def call(self) -> cst.Call:
        """Raises where the side registers no buffer, or several."""
        if self._call is None:
            raise Unsuitable("a side registers no buffer, or several")
        line = cst.ensure_type(self._call, cst.SimpleStatementLine)
        return cst.ensure_type(cst.ensure_type(line.body[0], cst.Expr).value, cst.Call)

    @property
    def value(self) -> cst.BaseExpression:
        """The tensor that becomes the buffer."""
        return self.call.args[1].value


def _check(file: ParsedSource, side: _Side, function: cst.FunctionDef) -> None:
    """Raises where a statement may not run on the other side as well."""
    check_expression(file, side.value)
    moved = set[str]()
    for statement in side.before:
        if isinstance(statement, cst.If) and statement.orelse is None and m.matches(statement.test, _IS_MISSING):
            for inner in statement.body.body:
                _check_made(file, inner, function)
        elif _moves(file, statement):
            moved |= {*_places(file, statement)}
        else:
            raise Unsuitable("a side does more than to make a tensor")
    for statement in side.behind:
        if not m.matches(statement, _SETS):
            raise Unsuitable("a side does more than to keep a tensor")
        kept = next(file.nodes(cst.Call, statement)).args
        if file.code(kept[2].value) not in moved:
            _check_own(file, function, _NAME.findall(file.code(kept[1].value)))


def _check_made(file: ParsedSource, statement: cst.CSTNode, function: cst.FunctionDef) -> None:
    """Raises unless a statement computes a value that only this function uses."""
    small = _assignment(statement)
    if small is None:
        raise Unsuitable("what is made once is more than a value")
    check_expression(file, small.value)
    _check_own(file, function, [each.attr.value for each in file.nodes(cst.Attribute, small.targets[0].target)])


def _check_own(file: ParsedSource, function: cst.FunctionDef, names: Sequence[str]) -> None:
    """Raises where an attribute is named outside of the function: its readers would find it earlier."""
    start, end = file.range(function)
    if used := [name for name in names if re.search(rf"\b{name}\b", file.text[:start] + file.text[end:])]:
        raise Unsuitable(f"`{used[0]}` is used elsewhere")


def _early(file: ParsedSource, sides: Sequence[_Side], function: cst.FunctionDef) -> tuple[tuple[Edit, ...], list[str]]:
    """The edits that define what torch does while it compiles, and the lines that have it do that: what is made once is
    made, and the buffer gets memory of its own. What the compiled code did of it, its next call would guard on.
    """
    call = sides[0].call
    value, key = file.code(cst.ensure_type(call.func, cst.Attribute).value), call.args[0]
    made = [each for side in sides for each in side.before if isinstance(each, cst.If)]
    made = [each for each in made if any("." in place for place in _places(file, each))]
    used = {name.value for each in (*made, key) for name in file.nodes(cst.Name, each) if is_read(file, name)}
    targets = [
        name.value for each in made for to in file.nodes(cst.AssignTarget, each) for name in file.nodes(cst.Name, to)
    ]
    rest = [name for name in local_names(file, function) if name in used.difference(targets, [value])]
    given = ", ".join([value, *rest])
    name = key.value.raw_value if isinstance(key.value, cst.SimpleString) else None
    before = f"{value}.{name}" if name is not None else f"getattr({value}, {file.code(key)})"
    own = file.code(call).replace(file.code(sides[0].value), f"{before}.clone()", 1)
    lines = [f"if hasattr({value}, {file.code(key)}):", f"{file.indent_unit}{own}"]
    lines += [line for each in made for line in _lines(file, each)]
    name = file.free_name("_prepare", of=file.module)
    text = file.newline.join([f"def {name}({given}):", *(f"{file.indent_unit}{line}" for line in lines), "", "", ""])
    called = Definition.of(file, SETUP, "_prepared", name, function)
    defined = file.insert_line(file.line_above(function), text)
    return (defined, *called.edits), [f"if {TRACED}:", f"{file.indent_unit}{called.name}({given})"]


def _moves(file: ParsedSource, statement: cst.CSTNode) -> bool:
    """Whether a statement only moves a tensor to a device or a dtype, in its own place."""
    small = _assignment(statement)
    if small is None or not isinstance(small.value, cst.Call):
        return False
    target, called = small.targets[0].target, small.value.func
    is_move = m.matches(target, _PLACE) and m.matches(called, m.Attribute(attr=m.Name("to")))
    return is_move and file.code(cst.ensure_type(called, cst.Attribute).value) == file.code(target)


def _assignment(statement: cst.CSTNode) -> cst.Assign | None:
    """The assignment to one target that a line begins with."""
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    return small if isinstance(small, cst.Assign) and len(small.targets) == 1 else None


def _places(file: ParsedSource, statement: cst.CSTNode) -> Iterator[str]:
    for assign in file.nodes(cst.Assign, statement):
        for target in assign.targets:
            parts = target.target.elements if isinstance(target.target, cst.Tuple) else [target.target]
            yield from (file.code(part) for part in parts if file.code(part) != "_")


def _lines(file: ParsedSource, statement: cst.CSTNode) -> list[str]:
    """The lines of a statement, with its comments, from the margin on."""
    leading = getattr(statement, "leading_lines", ())
    comments = [line.comment.value for line in leading if line.comment is not None]
    text = file.indent(statement) + file.code(statement).strip()
    return [*comments, *textwrap.dedent(text).splitlines()]
