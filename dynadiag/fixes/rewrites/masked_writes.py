"""A write to the elements of a mask, made only `if mask.any()`, or through `torch.where(mask)`: it is made always.
`x[mask] = y[mask]` is a write to all elements.

Right because a write through a mask without an element writes nothing. The mask must be boolean, as an index of
integers names elements: where that cannot be read from the function, the branch asks for the dtype first. A value that
is not a number is computed also where nothing is written, and must fit then too, so the proof has to see that side.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import libcst as cst
from libcst import matchers as m

from dynadiag.fixes.candidate import Candidate, Condition, Site
from dynadiag.fixes.edits import ParsedSource
from dynadiag.fixes.rewrites.conditions import Unsuitable
from dynadiag.fixes.rewrites.side_expressions import check_expression

_WHY = "a write through a mask without an element writes nothing"
_SAME_PLACES = "a number is written to the same places, and how many they are does not matter"
_SAME_ELEMENTS = "the elements of the mask are the other tensor's, and the others stay as they are"
_TENSOR = m.Name() | m.Attribute()
_COPIES = m.Assign([m.AssignTarget(m.Subscript(_TENSOR, [m.DoNotCare()]))], m.Subscript(_TENSOR, [m.DoNotCare()]))
_RESHAPED = m.Call(m.Attribute(attr=m.OneOf(*map(m.Name, ("view", "reshape", "flatten", "squeeze", "unsqueeze")))))
_PLACES = m.Call(m.Attribute(m.Name("torch"), m.Name("where")), [m.Arg(m.DoNotCare(), keyword=None)])
_ANY = m.Call(m.Attribute(m.DoNotCare(), m.Name("any")), args=[])
_COMPARES = m.Equal() | m.NotEqual() | m.LessThan() | m.LessThanEqual() | m.GreaterThan() | m.GreaterThanEqual()
_TESTS = ("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "bool", "logical_and", "logical_not")
_MADE = m.Comparison(comparisons=[m.ComparisonTarget(_COMPARES)]) | m.Call(
    m.Attribute(attr=m.OneOf(*map(m.Name, (*_TESTS, "all", "any", "logical_or", "logical_xor"))))
)
_NOT = m.UnaryOperation(m.BitInvert())
_JOINED = m.BinaryOperation(operator=m.BitAnd() | m.BitOr() | m.BitXor())
_DEVICE = m.Name("device") | m.Attribute(attr=m.Name("device"))
_MOVED = m.Call(m.Attribute(attr=m.Name("to")), [m.Arg(_DEVICE)])
_NUMBER = (
    m.Integer()
    | m.Float()
    | m.Name("True")
    | m.Name("False")
    | m.UnaryOperation(m.Minus(), m.Integer() | m.Float())
    | m.Call(m.Name("float"), [m.Arg(m.SimpleString())])
)


def candidates(site: Site[cst.If | cst.IfExp]) -> Iterator[Candidate]:
    """The body of the branch in place of the branch, or below a condition that holds for each boolean mask."""
    file, branch = site.file, site.node
    function = file.enclosing(branch, cst.FunctionDef)
    above = file.parent(branch)
    plain = isinstance(branch, cst.If) and branch.orelse is None and m.matches(branch.test, _ANY)
    if not plain or not isinstance(branch, cst.If) or not isinstance(function, cst.FunctionDef):
        return
    mask = cst.ensure_type(cst.ensure_type(branch.test, cst.Call).func, cst.Attribute).value
    writes = [_write(file, each, file.code(mask)) for each in branch.body.body]
    values = [each for each in writes if each is not None]
    is_elif = isinstance(above, cst.If) and above.orelse is branch
    if len(values) != len(writes) or is_elif:
        return
    is_boolean = _is_boolean(file, mask, function)
    if not is_boolean and not m.matches(mask, m.Name()):
        return
    numbers = all(m.matches(each, _NUMBER) for each in values)
    try:
        for each in (*values, *(target.value for target in file.nodes(cst.Subscript, branch.body))):
            check_expression(file, each)
    except Unsuitable:
        return
    conditions = () if numbers else (Condition(file.name, *file.range(branch.test), sides=(False,)),)
    pad, end = file.indent(branch), file.newline
    name = file.code(mask)
    if is_boolean:
        text = end.join(
            f"{pad if place else ''}{file.code(each).strip()}" for place, each in enumerate(branch.body.body)
        )
        edit = file.replace(branch, text)
    else:
        edit = file.replace(branch.test, f"{name}.dtype == torch.bool or {file.code(branch.test)}")
    title = f"write through `{name}` without asking whether it has an element"
    yield Candidate(title, "source", (edit,), _WHY, conditions, leaves_out_condition=True)


def index_candidates(site: Site[cst.Call]) -> Iterator[Candidate]:
    """Offer `x[mask] = 0` for `x[torch.where(mask)] = 0`: the size of the mask is known."""
    file, call = site.file, site.node
    target = file.enclosing(call, cst.Subscript)
    above = file.parent(target) if target is not None else None
    write = file.parent(above) if isinstance(above, cst.AssignTarget) else None
    function = file.enclosing(call, cst.FunctionDef)
    if not isinstance(write, cst.Assign) or not isinstance(target, cst.Subscript) or len(write.targets) != 1:
        return
    mask = call.args[0].value if m.matches(call, _PLACES) else None
    whole = file.code(target.slice[0]).strip() == file.code(call) and len(target.slice) == 1
    if mask is None or not whole or not m.matches(write.value, _NUMBER) or not isinstance(function, cst.FunctionDef):
        return
    text = file.code(mask) if _is_boolean(file, mask, function) else f"({file.code(mask)}) != 0"
    yield Candidate(f"write through the mask `{file.code(mask)}`", "source", (file.replace(call, text),), _SAME_PLACES)


def copy_candidates(site: Site[cst.Subscript]) -> Iterator[Candidate]:
    """Replace `x[mask] = y[mask]` of a boolean mask with `torch.where`: then no size depends on the mask.

    A mask with fewer dimensions than `x` gets more behind its own. One that is not boolean raises there.
    """
    file, function = site.file, site.file.enclosing(site.node, cst.FunctionDef)
    line = file.statement(site.node)
    assign = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
    if (
        not isinstance(assign, cst.Assign)
        or not m.matches(assign, _COPIES)
        or not isinstance(function, cst.FunctionDef)
    ):
        return
    target, value = (cst.ensure_type(each, cst.Subscript) for each in (assign.targets[0].target, assign.value))
    index, (x, y) = target.slice[0].slice, (file.code(each.value) for each in (target, value))
    if not isinstance(index, cst.Index) or file.code(index) != file.code(value.slice[0].slice):
        return
    if not _is_boolean(file, index.value, function) and not _is_said_to_be(file, index.value, function):
        return
    text, named, mask = file.code(index.value), "", file.code(index.value)
    if not isinstance(index.value, cst.Name):
        mask = file.free_name("mask", inside=function)
        named = f"{mask} = {text}{file.newline}{file.indent(assign)}"
    wide = f"{mask}[(..., *[None] * ({x}.dim() - {mask}.dim()))]"
    edit = file.replace(assign, f"{named}{x}.copy_(torch.where({wide}, {y}, {x}))")
    yield Candidate(f"copy through the mask `{text}` with `torch.where`", "source", (edit,), _SAME_ELEMENTS)


def _is_said_to_be(file: ParsedSource, mask: cst.BaseExpression, function: cst.FunctionDef) -> bool:
    """Whether the annotation of a parameter says that the mask is boolean. The parameter may be reshaped first."""
    while isinstance(mask, cst.Call) and m.matches(mask, _RESHAPED):
        mask = cst.ensure_type(mask.func, cst.Attribute).value
    name = mask.value if isinstance(mask, cst.Name) else None
    said = [each.annotation for each in file.nodes(cst.Param, function.params) if each.name.value == name]
    return bool(said) and said[0] is not None and "BoolTensor" in file.code(said[0])


def _write(
    file: ParsedSource, statement: cst.BaseStatement | cst.BaseSmallStatement, mask: str
) -> cst.BaseExpression | None:
    """What a statement writes to the elements of the mask; None for another statement."""
    if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
        statement = statement.body[0]
    if not isinstance(statement, cst.Assign) or len(statement.targets) != 1:
        return None
    target = statement.targets[0].target
    if not isinstance(target, cst.Subscript) or len(target.slice) != 1:
        return None
    return statement.value if file.code(target.slice[0]).strip() == mask else None


def _is_boolean(file: ParsedSource, mask: cst.BaseExpression, function: cst.FunctionDef) -> bool:
    """Whether a mask is boolean by how it is computed; a name is, if all that the function gives it is."""
    given: dict[str, list[cst.BaseExpression]] = defaultdict(list)
    for node in file.nodes(cst.Assign, function):
        for target in node.targets:
            if isinstance(target.target, cst.Name):
                given[target.target.value].append(node.value)
    kinds = (cst.AugAssign, cst.NamedExpr, cst.For, cst.Tuple, cst.Param, cst.AsName, cst.CompFor)
    others = {name.value for kind in kinds for node in file.nodes(kind, function) for name in _bound(file, node)}

    def holds(value: cst.BaseExpression, seen: frozenset[str]) -> bool:
        if isinstance(value, cst.Name):
            values = given.get(value.value, [])
            known = bool(values) and value.value not in others
            return value.value in seen or (known and all(holds(each, seen | {value.value}) for each in values))
        if m.matches(value, _NOT):
            return holds(cst.ensure_type(value, cst.UnaryOperation).expression, seen)
        if isinstance(value, cst.BinaryOperation) and m.matches(value, _JOINED):
            return holds(value.left, seen) and holds(value.right, seen)
        if m.matches(value, _MOVED):
            return holds(cst.ensure_type(cst.ensure_type(value, cst.Call).func, cst.Attribute).value, seen)
        return m.matches(value, _MADE)

    return holds(mask, frozenset())


def _bound(file: ParsedSource, node: cst.CSTNode) -> Iterator[cst.Name]:
    """The names that a node binds in another way than by an assignment to a name alone."""
    if isinstance(node, (cst.Param, cst.AsName)):
        target: cst.CSTNode = node.name
    elif isinstance(node, (cst.AugAssign, cst.NamedExpr, cst.For, cst.CompFor)):
        target = node.target
    elif isinstance(file.parent(node), cst.AssignTarget):
        target = node
    else:
        return
    parts = [each for kind in (cst.Subscript, cst.Attribute) for each in file.nodes(kind, target)]
    unbound = {name for each in parts for name in file.nodes(cst.Name, each)}
    yield from (name for name in file.nodes(cst.Name, target) if name not in unbound)
