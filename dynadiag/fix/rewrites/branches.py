"""A branch on the value of a tensor: both sides are computed, and `torch.where` selects one by the condition. This is
right if both sides only compute tensors and assign local names. The side that is not taken must not disturb the other:
a root, a logarithm or a division of values that its condition excludes gives infinity, and its gradient times zero is
NaN. So operands of such functions are replaced by 1 where the side is not taken. The proof has to see both sides taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import libcst as cst
from libcst import matchers as m

from dynadiag.fix.candidate import Candidate, Condition, Sources
from dynadiag.fix.edits import Edit, ParsedSource
from dynadiag.fix.problems import FixProblem
from dynadiag.recording.records import Span

__all__ = ["candidates"]

# Functions with values, or slopes, that are not finite everywhere.
_PARTIAL = re.compile(
    r"^(?:r?sqrt|log(?:2|10|1p)?|reciprocal|(?:float_)?pow(?:er)?|(?:true_|floor_)?div(?:ide)?|remainder|fmod|a(?:rc)?(?:cos|sin)h?"
    r"|a(?:rc)?tan(?:h|2)|exp(?:2|m1)?|sinh|cosh|logit|lgamma|digamma|xlogy|(?:vector_)?norm|std|var|normalize"
    r"|cosine_similarity|rms_norm|inv(?:erse)?|solve|cholesky|det|s?logdet)$"
)
_DIVISIONS = (cst.Divide, cst.FloorDivide, cst.Modulo)
_SCOPES = (cst.Lambda, cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp, cst.NamedExpr, cst.Await, cst.Yield)
_WHY = "both sides only compute values, and where a side is not taken its operands are harmless"


class _Unsuitable(Exception):  # noqa: N818 - this branch is not of the form that the rewrite takes
    """The branch has a form that is not rewritten."""


def candidates(problem: FixProblem, sources: Sources) -> Iterator[Candidate]:
    """`torch.where` for an `if` statement, an early return, or a conditional expression."""
    file = sources.file(problem.file)
    if file is None or problem.kind != "break" or not re.search(r"^import torch\b(?! as)", file.text, re.M):
        return
    found = _branch(file, problem.span)
    if found is None:
        return
    try:
        edit = _conditional(file, found) if isinstance(found, cst.IfExp) else _Statement(file, found).edit()
        condition = Condition(file.name, *file.range(found.test))
    except _Unsuitable:
        return
    yield Candidate("compute both sides and choose with `torch.where`", "source", (edit,), _WHY, (condition,))


def _branch(file: ParsedSource, span: Span) -> cst.If | cst.IfExp | None:
    """The innermost branch whose condition holds the span of the break."""
    if span.line is None or span.column is None:
        return None
    position = file.offset(span.line, span.column)
    found: list[cst.If | cst.IfExp] = [*file.nodes(cst.If), *file.nodes(cst.IfExp)]
    holding = [node for node in found if file.range(node.test)[0] <= position < file.range(node.test)[1]]
    return min(holding, key=lambda node: file.range(node.test)[1] - file.range(node.test)[0], default=None)


def _condition(file: ParsedSource, test: cst.BaseExpression) -> str:
    """The condition as a tensor: without `bool()` and `.item()`, and with operators on tensors."""
    if isinstance(test, cst.BooleanOperation):
        sign = "&" if isinstance(test.operator, cst.And) else "|"
        if not all(isinstance(side, (cst.Comparison, cst.BooleanOperation)) for side in (test.left, test.right)):
            raise _Unsuitable
        return f"({_condition(file, test.left)}) {sign} ({_condition(file, test.right)})"
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return f"torch.logical_not({_condition(file, test.expression)})"
    if isinstance(test, cst.Call) and m.matches(test.func, m.Name("bool")) and len(test.args) == 1:
        return _condition(file, test.args[0].value)
    return _without_item(file, test)


def _without_item(file: ParsedSource, test: cst.BaseExpression) -> str:
    if isinstance(test, cst.Comparison) and len(test.comparisons) != 1:
        raise _Unsuitable  # `0 < x < 1` is two conditions
    start, text = file.range(test)[0], file.code(test)
    for call in reversed(list(file.nodes(cst.Call, test))):
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == "item" and not call.args:
            end = file.range(call.func.value)[1]
            text = text[: end - start] + text[file.range(call)[1] - start :]
    return text


def _conditional(file: ParsedSource, found: cst.IfExp) -> Edit:
    """A conditional expression as a call of `torch.where`."""
    condition = _condition(file, found.test)
    sides = []
    for expression, order in ((found.body, "{name}, 1.0"), (found.orelse, "1.0, {name}")):
        _check_expression(file, expression)
        names = _risky_names(file, [expression])
        guards = {name: f"torch.where({condition}, {order.format(name=name)})" for name in names}
        sides.append(_renamed(file, expression, guards))
    return file.replace(found, f"torch.where({condition}, {sides[0]}, {sides[1]})")


@dataclass(slots=True)
class _Side:
    """One side: assignments in order, and what it returns."""

    assigned: list[tuple[str, cst.BaseExpression, str | None]] = field(default_factory=list)
    returned: cst.BaseExpression | None = None

    @property
    def assigned_names(self) -> list[str]:
        return list(dict.fromkeys(name for name, _, _ in self.assigned))


class _Statement:
    """An `if` statement with two sides of assignments, or of returns."""

    def __init__(self, file: ParsedSource, found: cst.If) -> None:
        self._file, self._if = file, found
        self._function = file.enclosing(found, cst.FunctionDef)
        if not isinstance(self._function, cst.FunctionDef) or isinstance(file.parent(found), cst.If):
            raise _Unsuitable
        self._last: cst.CSTNode = found
        self._condition = _condition(file, found.test)
        self._taken, self._other = self._sides()
        self._lines: list[str] = []

    def edit(self) -> Edit:
        """The edit of the whole statement."""
        merged = self._merged()
        wheres = [self._where(name) for name in merged]
        if self._taken.returned is not None:
            wheres.append("return " + self._returned())
        indent, end = self._file.indent(self._if), self._file.newline
        lines = [*self._head(wheres), *self._lines, *wheres]
        text = "".join(f"{indent}{line}{end}" for line in lines)
        return self._file.replace_lines(self._if, self._last, text)

    def _sides(self) -> tuple[_Side, _Side]:
        taken = self._side(_statements(self._if.body))
        if self._if.orelse is not None:
            if not isinstance(self._if.orelse, cst.Else):
                raise _Unsuitable  # elif
            other = self._side(_statements(self._if.orelse.body))
        elif taken.returned is not None:
            other = self._side(self._following())
        else:
            other = _Side()
        if (taken.returned is None) != (other.returned is None):
            raise _Unsuitable
        return taken, other

    def _following(self) -> list[cst.CSTNode]:
        """The statements behind an early return, up to the end of the function."""
        block = self._file.parent(self._if)
        if not isinstance(block, cst.IndentedBlock) or self._file.parent(block) is not self._function:
            raise _Unsuitable
        position = list(block.body).index(self._if)
        rest = list(block.body)[position + 1 :]
        if not rest:
            raise _Unsuitable
        self._last = rest[-1]
        return [part for line in rest for part in _parts(line)]

    def _side(self, statements: Sequence[cst.CSTNode]) -> _Side:
        side = _Side()
        for statement in statements:
            if side.returned is not None:
                raise _Unsuitable
            if isinstance(statement, cst.Return) and statement.value is not None:
                side.returned = statement.value
                _check_expression(self._file, statement.value)
            elif not isinstance(statement, cst.Pass):
                side.assigned.append(self._assignment(statement))
        return side

    def _assignment(self, statement: cst.CSTNode) -> tuple[str, cst.BaseExpression, str | None]:
        """Name, expression, and the operator of an augmented assignment."""
        if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
            target, operator = statement.targets[0].target, None
        elif isinstance(statement, cst.AugAssign):
            target, operator = statement.target, self._file.code(statement.operator).rstrip("=").strip()
        else:
            raise _Unsuitable
        if not isinstance(target, cst.Name):
            raise _Unsuitable
        _check_expression(self._file, statement.value)
        return target.value, statement.value, operator

    def _merged(self) -> list[str]:
        """The names that have a value on both sides and are read afterwards. Raises where only one side sets a name."""
        merged = []
        for name in dict.fromkeys([*self._taken.assigned_names, *self._other.assigned_names]):
            both = name in self._taken.assigned_names and name in self._other.assigned_names
            if not self._read_afterwards(name):
                continue
            if not both and not self._defined_before(name):
                raise _Unsuitable
            merged.append(name)
        if not merged and self._taken.returned is None:
            raise _Unsuitable
        return merged

    def _read_afterwards(self, name: str) -> bool:
        if self._taken.returned is not None:
            return False
        assert self._function is not None
        loop = self._file.enclosing(self._if, cst.For, cst.While)
        end = self._file.range(self._if)[1]
        inside = loop if loop is not None and self._file.enclosing(loop, cst.FunctionDef) is self._function else None
        found = [node for node in self._file.nodes(cst.Name, self._function) if node.value == name]
        in_loop = self._file.range(inside) if inside is not None else (end, end)
        own = self._file.range(self._if)
        return any(
            place >= end or (in_loop[0] <= place < in_loop[1] and not own[0] <= place < own[1])
            for place in (self._file.range(node)[0] for node in found)
        )

    def _defined_before(self, name: str) -> bool:
        assert isinstance(self._function, cst.FunctionDef)
        start = self._file.range(self._if)[0]
        names = (node for node in self._file.nodes(cst.Name, self._function) if node.value == name)
        return any(self._file.range(node)[0] < start for node in names)

    def _head(self, wheres: Sequence[str]) -> list[str]:
        """The line that names the condition, where it is used more than once; else it is put where it is used."""
        uses = sum(line.count(_CONDITION) for line in [*self._lines, *wheres])
        text = self._name("condition") if uses > 1 else self._condition
        for lines in (self._lines, wheres):
            lines[:] = [line.replace(_CONDITION, text) for line in lines]  # type: ignore[index]  # both are lists
        return [f"{text} = {self._condition}"] if uses > 1 else []

    def _name(self, wanted: str) -> str:
        """A name that the function does not use."""
        assert self._function is not None
        used = {node.value for node in self._file.nodes(cst.Name, self._function)}
        while wanted in used:
            wanted += "_"
        return wanted

    def _where(self, name: str) -> str:
        values = [self._value(side, name, suffix) for side, suffix in ((self._taken, "if"), (self._other, "else"))]
        return f"{name} = torch.where({_CONDITION}, {values[0]}, {values[1]})"

    def _returned(self) -> str:
        sides = []
        for side, suffix in ((self._taken, "if"), (self._other, "else")):
            names = self._compute(side, suffix)
            assert side.returned is not None
            parts = _tuple_parts(side.returned)
            sides.append([_renamed(self._file, part, names) for part in parts])
        if len(sides[0]) != len(sides[1]):
            raise _Unsuitable
        return ", ".join(a if a == b else f"torch.where({_CONDITION}, {a}, {b})" for a, b in zip(*sides, strict=True))

    def _value(self, side: _Side, name: str, suffix: str) -> str:
        """The value of a name on a side: an expression, where the last assignment is that and nothing reads it."""
        if name not in side.assigned_names:
            return name
        last = side.assigned[-1]
        others = [other for other in side.assigned_names if other != name and self._read_afterwards(other)]
        if last[0] == name and not others:
            names = self._compute(side, suffix, side.assigned[:-1])
            return _assigned_text(self._file, last, names)
        return self._compute(side, suffix)[name]

    def _compute(
        self, side: _Side, suffix: str, assigned: Sequence[tuple[str, cst.BaseExpression, str | None]] | None = None
    ) -> dict[str, str]:
        """Write the lines that compute a side; its names with what they are called there."""
        wanted = side.assigned if assigned is None else assigned
        names = self._guarded(side, suffix)
        for item in wanted:
            text = _assigned_text(self._file, item, names)
            own = self._name(f"{item[0]}_{suffix}") if self._keeps(item[0]) else item[0]
            line = f"{own} = {text}"
            if line not in self._lines:
                self._lines.append(line)
            names[item[0]] = own
        return names

    def _keeps(self, name: str) -> bool:
        """Whether a name has a value that the other side, or the code behind, still needs."""
        both = name in self._taken.assigned_names and name in self._other.assigned_names
        return both or self._read_afterwards(name) or self._defined_before(name)

    def _guarded(self, side: _Side, suffix: str) -> dict[str, str]:
        """Harmless operands for a side: 1 where it is not taken."""
        expressions = [expression for _, expression, _ in side.assigned]
        expressions += [side.returned] if side.returned is not None else []
        names = {}
        for name in _risky_names(self._file, expressions):
            if not self._defined_before(name):
                continue
            own = self._name(f"safe_{name}" if suffix == "if" else f"safe_{name}_else")
            order = f"{name}, 1.0" if suffix == "if" else f"1.0, {name}"
            line = f"{own} = torch.where({_CONDITION}, {order})"
            if line not in self._lines:
                self._lines.insert(0, line)
            names[name] = own
        return names


_CONDITION = "\x00condition\x00"


def _statements(block: cst.BaseSuite) -> list[cst.CSTNode]:
    if isinstance(block, cst.SimpleStatementSuite):
        return list(block.body)
    return [part for line in block.body for part in _parts(line)]


def _parts(line: cst.CSTNode) -> list[cst.CSTNode]:
    if not isinstance(line, cst.SimpleStatementLine):
        raise _Unsuitable
    return list(line.body)


def _tuple_parts(value: cst.BaseExpression) -> list[cst.BaseExpression]:
    return [element.value for element in value.elements] if isinstance(value, cst.Tuple) else [value]


def _check_expression(file: ParsedSource, expression: cst.BaseExpression) -> None:
    """Raises where an expression may do more than compute, or has names of its own."""
    for scope in _SCOPES:
        if next(file.nodes(scope, expression), None) is not None:
            raise _Unsuitable
    for call in file.nodes(cst.Call, expression):
        name = _callee_name(call)
        if name is None or (name.endswith("_") and not name.endswith("__")) or name in ("print", "setattr", "append"):
            raise _Unsuitable


def _callee_name(call: cst.Call) -> str | None:
    if isinstance(call.func, cst.Attribute):
        return call.func.attr.value
    return call.func.value if isinstance(call.func, cst.Name) else None


def _risky_names(file: ParsedSource, expressions: Sequence[cst.BaseExpression]) -> list[str]:
    """Local names that a root, a logarithm, a division or the like is taken of."""
    found = list[str]()
    for expression in expressions:
        for operand in _risky_operands(file, expression):
            found += [node.value for node in _variables(file, operand)]
    return list(dict.fromkeys(found))


def _risky_operands(file: ParsedSource, expression: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    for operation in file.nodes(cst.BinaryOperation, expression):
        if isinstance(operation.operator, _DIVISIONS):
            yield operation.right
        elif isinstance(operation.operator, cst.Power):
            yield operation.left
            yield operation.right
    for call in file.nodes(cst.Call, expression):
        if _PARTIAL.match(_callee_name(call) or ""):
            yield from (argument.value for argument in call.args)
            if isinstance(call.func, cst.Attribute):
                yield call.func.value


def _variables(file: ParsedSource, expression: cst.BaseExpression) -> Iterator[cst.Name]:
    """Names of variables that are read, not those of attributes, keywords, functions, or objects with attributes."""
    for node in file.nodes(cst.Name, expression):
        parent = file.parent(node)
        if isinstance(parent, (cst.Attribute, cst.Arg)) and not _is_value(parent, node, file):
            continue
        if isinstance(parent, cst.Call) and parent.func is node:
            continue
        yield node


def _is_value(parent: cst.Attribute | cst.Arg, node: cst.Name, file: ParsedSource) -> bool:
    """Whether a name stands for a tensor here: `x` in `x.sqrt()` and in `f(x)`, not `self` in `self.scale`."""
    if parent.value is not node:
        return False
    if isinstance(parent, cst.Arg):
        return True
    above = file.parent(parent)
    is_method = isinstance(above, cst.Call) and above.func is parent
    return is_method and node.value not in ("torch", "F", "math", "np", "nn", "self", "cls")


def _renamed(file: ParsedSource, expression: cst.BaseExpression, names: Mapping[str, str]) -> str:
    """The text of an expression with variables renamed."""
    start, text = file.range(expression)[0], file.code(expression)
    for node in reversed(list(_variables(file, expression))):
        if node.value in names:
            place = file.range(node)
            text = text[: place[0] - start] + names[node.value] + text[place[1] - start :]
    return f"({text})" if "\n" in text else text


def _assigned_text(
    file: ParsedSource, item: tuple[str, cst.BaseExpression, str | None], names: Mapping[str, str]
) -> str:
    name, expression, operator = item
    text = _renamed(file, expression, names)
    return text if operator is None else f"{names.get(name, name)} {operator} ({text})"
