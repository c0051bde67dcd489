"""A branch on the value of a tensor: both sides are computed, and `torch.where` selects one by the condition; or both
are in the graph, and `torch.cond` runs one of them (it draws random numbers, or computes much). This is right if both
sides only compute tensors and assign local names. The side that is not taken must not disturb the other: a root, a
logarithm or a division of values that its condition excludes gives infinity, and its gradient times zero is NaN. So
operands of such functions are replaced by 1 where the side is not taken. The proof has to see both sides taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import libcst as cst

from dynadiag.fixes.candidate import Candidate, Condition, Refusal, Sources
from dynadiag.fixes.edits import Edit, ParsedSource, callee_name
from dynadiag.fixes.problems import FixProblem
from dynadiag.fixes.rewrites.conditions import Unsuitable, condition_text, if_around, position_of
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
_WHY_COND = "both sides only compute values, both are in the graph, and only the one that is chosen runs"
_ONE_TENSOR = "a side computes several values, or none"


def candidates(problem: FixProblem, sources: Sources) -> Iterator[Candidate | Refusal]:
    """`torch.where` for an `if` statement, an early return, or a conditional expression; then `torch.cond`."""
    file = sources.file(problem.file)
    if file is None or problem.kind != "break" or not re.search(r"^import torch\b(?! as)", file.text, re.M):
        return
    found = if_around(file, problem.span)
    if found is None:
        return
    yield from _choices(file, found, problem.span, "compute both sides and choose with `torch.where`", _WHY, False)
    yield from _choices(file, found, problem.span, "choose the side with `torch.cond`", _WHY_COND, True)


def _choices(
    file: ParsedSource, found: cst.If | cst.IfExp, span: Span, title: str, why: str, cond: bool
) -> Iterator[Candidate | Refusal]:
    try:
        if isinstance(found, cst.IfExp):
            edit, tests = (_cond_expression if cond else _conditional)(file, found), [found.test]
        else:
            whole = _whole(file, found)
            kind = _Chain if isinstance(whole.orelse, cst.If) else _Statement
            statement = kind(file, whole, position_of(file, span))
            edit, tests = statement.cond() if cond else statement.edit(), statement.tests
        conditions = tuple(Condition(file.name, *file.range(test)) for test in tests)
    except Unsuitable as unsuitable:
        if not cond:
            yield Refusal(title, str(unsuitable))
        return
    yield Candidate(title, "source", (edit,), why, conditions)


def _conditional(file: ParsedSource, found: cst.IfExp) -> Edit:
    """A conditional expression as a call of `torch.where`."""
    condition = condition_text(file, found.test)
    sides = []
    for expression, order in ((found.body, "{name}, 1.0"), (found.orelse, "1.0, {name}")):
        _check_expression(file, expression)
        names = _risky_names(file, [expression])
        guards = {name: f"torch.where({condition}, {order.format(name=name)})" for name in names}
        sides.append(_renamed(file, expression, guards))
    return file.replace(found, f"torch.where({condition}, {sides[0]}, {sides[1]})")


def _cond_expression(file: ParsedSource, found: cst.IfExp) -> Edit:
    """A conditional expression as a call of `torch.cond`."""
    sides = []
    for expression in (found.body, found.orelse):
        _check_expression(file, expression)
        sides.append(_new_tensor(file.code(expression)))
    return file.replace(found, _cond_call(condition_text(file, found.test), *sides))


def _cond_call(condition: str, taken: str, other: str) -> str:
    return f"torch.cond({condition}, lambda: {taken}, lambda: {other})"


def _new_tensor(text: str) -> str:
    """The value of a side: `torch.cond` takes none that is an operand itself."""
    return f"{text}.clone()" if re.fullmatch(r"[\w.]+", text) else text


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

    def __init__(self, file: ParsedSource, found: cst.If, position: int) -> None:
        self._file, self._if = file, found
        self._function = file.enclosing(found, cst.FunctionDef)
        if not isinstance(self._function, cst.FunctionDef):
            raise Unsuitable("it is not in a function")
        self._last: cst.CSTNode = found
        self._outer, test = self._split(found.test, position)
        self.tests = [test]
        self._condition = condition_text(file, test)
        self._taken, self._other = self._sides()
        self._lines: list[str] = []

    def _split(self, test: cst.BaseExpression, position: int) -> tuple[str | None, cst.BaseExpression]:
        """The condition in two parts: `if a and b` without `else` is `if a: if b`, and ``a`` may be no tensor."""
        conjunction = isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And)
        if not conjunction or self._if.orelse is not None or self._file.range(test.right)[0] > position:  # type: ignore[attr-defined]  # a BooleanOperation
            return None, test
        return self._file.code(test.left), test.right  # type: ignore[attr-defined]  # a BooleanOperation

    def edit(self) -> Edit:
        """The edit of the whole statement."""
        merged = self._merged()
        wheres = [self._where(name) for name in merged]
        if self._taken.returned is not None:
            wheres.append("return " + self._returned())
        return self._written([*self._head(wheres), *self._lines, *wheres])

    def cond(self) -> Edit:
        """The edit of the whole statement, with `torch.cond`: each side has one value."""
        returned = self._taken.returned is not None
        names = [] if returned else self._merged()
        if len(names) != 1 and not returned:
            raise Unsuitable(_ONE_TENSOR)
        sides = [self._only_value(side, names[0] if names else None) for side in (self._taken, self._other)]
        call = _cond_call(self._condition, *sides)
        return self._written([f"return {call}" if returned else f"{names[0]} = {call}"])

    def _only_value(self, side: _Side, name: str | None) -> str:
        """The one value that a side computes: its result, or that of ``name``."""
        if name is None:
            if side.assigned or side.returned is None or isinstance(side.returned, cst.Tuple):
                raise Unsuitable(_ONE_TENSOR)
            return _new_tensor(self._file.code(side.returned))
        if len(side.assigned) > 1:
            raise Unsuitable(_ONE_TENSOR)
        return _new_tensor(_assigned_text(self._file, side.assigned[0], {}) if side.assigned else name)

    def _written(self, lines: Sequence[str]) -> Edit:
        indent, end = self._file.indent(self._if), self._file.newline
        if self._outer is not None:
            lines = [f"if {self._outer}:", *(f"{self._file.indent_unit}{line}" for line in lines)]
        text = "".join(f"{indent}{line}{end}" for line in lines)
        return self._file.replace_lines(self._if, self._last, text)

    def _sides(self) -> tuple[_Side, _Side]:
        taken = self._side(_statements(self._if.body))
        if self._if.orelse is not None:
            assert isinstance(self._if.orelse, cst.Else)
            other = self._side(_statements(self._if.orelse.body))
        elif taken.returned is not None:
            other = self._side(self._following())
        else:
            other = _Side()
        if (taken.returned is None) != (other.returned is None):
            raise Unsuitable("one side returns and the other goes on")
        return taken, other

    def _following(self) -> list[cst.CSTNode]:
        """The statements behind an early return, up to the end of the function."""
        block = self._file.parent(self._if)
        if not isinstance(block, cst.IndentedBlock) or self._file.parent(block) is not self._function:
            raise Unsuitable("it returns from within a loop or another block: what runs next depends on it")
        position = list(block.body).index(self._if)
        rest = list(block.body)[position + 1 :]
        if not rest:
            raise Unsuitable("the function returns nothing on the other side")
        self._last = rest[-1]
        return [part for line in rest for part in _parts(line)]

    def _side(self, statements: Sequence[cst.CSTNode]) -> _Side:
        side = _Side()
        for statement in statements:
            if side.returned is not None:
                raise Unsuitable("a statement follows a `return`")
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
            raise Unsuitable(_doing(self._file.code(statement)))
        if not isinstance(target, cst.Name):
            raise Unsuitable(_doing(self._file.code(statement)))
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
                raise Unsuitable(f"`{name}` has a value on one side alone")
            merged.append(name)
        if not merged and self._taken.returned is None:
            raise Unsuitable("neither side sets a name that is read afterwards")
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
        return self._file.free_name(wanted, inside=self._function)

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
            raise Unsuitable("the two sides return another number of values")
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


class _Chain(_Statement):
    """An `if` with `elif` and `else`, each side of which assigns the same name once."""

    def _sides(self) -> tuple[_Side, _Side]:
        self._parts = [(self._if.test, self._side(_statements(self._if.body)))]
        below = self._if.orelse
        while isinstance(below, cst.If):
            self._parts.append((below.test, self._side(_statements(below.body))))
            below = below.orelse
        self.tests = [test for test, _ in self._parts]
        if below is None:
            raise Unsuitable("it has an `elif` and no `else`")
        self._last_side = self._side(_statements(below.body))
        return self._parts[0][1], self._last_side

    def edit(self) -> Edit:
        """The edit of the whole statement."""
        names = [self._name(f"condition_{number}") for number in range(1, len(self._parts) + 1)]
        sides = [side for _, side in self._parts] + [self._last_side]
        targets = {name for side in sides for name in side.assigned_names}
        if len(targets) != 1 or any(len(side.assigned) != 1 or side.returned for side in sides):
            raise Unsuitable("it has an `elif`, and its sides do more than to set one name")
        chosen = [" & ".join([*(f"~{name}" for name in names[:i]), *names[i : i + 1]]) for i in range(len(sides))]
        values = [self._guarded_text(side, taken) for side, taken in zip(sides, chosen, strict=True)]
        text = values[-1]
        for name, value in zip(reversed(names), reversed(values[:-1]), strict=True):
            text = f"torch.where({name}, {value}, {text})"
        heads = [f"{name} = {condition_text(self._file, test)}" for name, test in zip(names, self.tests, strict=True)]
        return self._written([*heads, f"{targets.pop()} = {text}"])

    def cond(self) -> Edit:
        """There is none: `torch.cond` has two sides."""
        raise Unsuitable(_ONE_TENSOR)

    def _guarded_text(self, side: _Side, taken: str) -> str:
        """What a side assigns, with 1 for operands that may do harm where it is not taken."""
        item = side.assigned[0]
        risky = [name for name in _risky_names(self._file, [item[1]]) if self._defined_before(name)]
        return _assigned_text(self._file, item, {name: f"torch.where({taken}, {name}, 1.0)" for name in risky})


_CONDITION = "\x00condition\x00"


def _whole(file: ParsedSource, found: cst.If) -> cst.If:
    """The `if` of an `elif`."""
    above = file.parent(found)
    return _whole(file, above) if isinstance(above, cst.If) and above.orelse is found else found


def _statements(block: cst.BaseSuite) -> list[cst.CSTNode]:
    if isinstance(block, cst.SimpleStatementSuite):
        return list(block.body)
    return [part for line in block.body for part in _parts(line)]


def _parts(line: cst.CSTNode) -> list[cst.CSTNode]:
    if not isinstance(line, cst.SimpleStatementLine):
        raise Unsuitable("a side has a loop, a `with`, or another `if`")
    return list(line.body)


def _doing(code: str) -> str:
    """Why a statement on a side stands in the way."""
    line = code.strip().partition("\n")[0]
    return f"`{line[:60]}` has an effect, which is there on one side alone"


def _tuple_parts(value: cst.BaseExpression) -> list[cst.BaseExpression]:
    return [element.value for element in value.elements] if isinstance(value, cst.Tuple) else [value]


def _check_expression(file: ParsedSource, expression: cst.BaseExpression) -> None:
    """Raises where an expression may do more than compute, or has names of its own."""
    for scope in _SCOPES:
        if next(file.nodes(scope, expression), None) is not None:
            raise Unsuitable(f"`{file.code(expression)[:60]}` has names of its own")
    for call in file.nodes(cst.Call, expression):
        name = callee_name(call)
        if name is None or (name.endswith("_") and not name.endswith("__")) or name in ("print", "setattr", "append"):
            raise Unsuitable(_doing(file.code(call)))


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
        if _PARTIAL.match(callee_name(call) or ""):
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
