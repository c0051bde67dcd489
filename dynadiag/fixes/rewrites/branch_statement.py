"""An `if` statement with two sides of assignments or of returns, written with `torch.where` or `torch.cond`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import libcst as cst

from dynadiag.fixes.edits import Edit, ParsedSource
from dynadiag.fixes.rewrites.conditions import Unsuitable, condition_text
from dynadiag.fixes.rewrites.side_expressions import (
    assigned_text,
    check_expression,
    cond_call,
    effect_of,
    new_tensor,
    renamed,
    risky_names,
    tuple_parts,
)

ONE_TENSOR = "a side computes several values, or none"
CONDITION = "\x00condition\x00"  # in a line: what stands for the condition there
_STATE = re.compile(r"self\.\w+")


@dataclass(slots=True)
class BranchSide:
    """One side: assignments in order, what it returns, and the effects that are left to a function of their own."""

    assigned: list[tuple[str, cst.BaseExpression, str | None]] = field(default_factory=list)
    returned: cst.BaseExpression | None = None
    effects: list[cst.CSTNode] = field(default_factory=list)

    @property
    def assigned_names(self) -> list[str]:
        return list(dict.fromkeys(name for name, _, _ in self.assigned))


class BranchStatement:
    """An `if` statement with two sides of assignments, or of returns. What ``is_effect`` of them is left out."""

    def __init__(
        self,
        file: ParsedSource,
        found: cst.If,
        position: int,
        is_effect: Callable[[cst.CSTNode], bool] = lambda _: False,
    ) -> None:
        self._file, self._if, self._is_effect = file, found, is_effect
        self._function = file.enclosing(found, cst.FunctionDef)
        if not isinstance(self._function, cst.FunctionDef):
            raise Unsuitable("it is not in a function")
        self._last: cst.CSTNode = found
        self._outer, test = self._split(found.test, position)
        self.tests = [test]
        self._condition = condition_text(file, test)
        self._taken, self._other = self.sides = self._sides()
        self._check_state()
        self._lines: list[str] = []

    @property
    def state(self) -> list[str]:
        """The attributes of the object that a side sets."""
        names = [*self._taken.assigned_names, *self._other.assigned_names]
        return [name.partition(".")[2] for name in dict.fromkeys(names) if _STATE.fullmatch(name)]

    def _check_state(self) -> None:
        """Raises where a side reads an attribute that it has set: the code has its value on the other side too."""
        for side in (self._taken, self._other):
            values = [value for _, value, _ in side.assigned] + ([side.returned] if side.returned is not None else [])
            for place, (name, _, _) in enumerate(side.assigned):
                read = [each for value in values[place + 1 :] for each in self._file.nodes(cst.Attribute, value)]
                if _STATE.fullmatch(name) and name in map(self._file.code, read):
                    raise Unsuitable(f"a side reads `{name}`, which it has set")

    def _split(self, test: cst.BaseExpression, position: int) -> tuple[str | None, cst.BaseExpression]:
        """The condition in two parts: `if a and b` without `else` is `if a: if b`, and ``a`` may be no tensor."""
        conjunction = isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And)
        if not conjunction or self._if.orelse is not None or self._file.range(test.right)[0] > position:  # type: ignore[attr-defined]  # a BooleanOperation
            return None, test
        return self._file.code(test.left), test.right  # type: ignore[attr-defined]  # a BooleanOperation

    def edit(self, first: str | None = None) -> Edit:
        """The edit of the whole statement. The line ``first`` comes in front, with `CONDITION` for the condition."""
        self._lines = []
        merged = self._merged()
        wheres = [self._where(name) for name in merged]
        if self._taken.returned is not None:
            wheres.append("return " + self._returned())
        if first is not None:
            self._lines.insert(0, first)
        return self._written([*self._head(wheres), *self._lines, *wheres])

    def cond(self) -> Edit:
        """The edit of the whole statement, with `torch.cond`: each side has one value, or one for each name."""
        returned = self._taken.returned is not None
        names = [] if returned else self._merged()
        sides = [self._result(side) if returned else self._values(side, names) for side in (self._taken, self._other)]
        call = cond_call(self._condition, *sides)
        return self._written([f"return {call}" if returned else f"{', '.join(names)} = {call}"])

    def _result(self, side: BranchSide) -> str:
        """The one value that a side returns."""
        if side.assigned or side.returned is None or isinstance(side.returned, cst.Tuple):
            raise Unsuitable(ONE_TENSOR)
        return new_tensor(self._file.code(side.returned))

    def _values(self, side: BranchSide, names: Sequence[str]) -> str:
        """Return the values that a side gives to names. Raises where a value is computed from another of them."""
        made = {name: assigned_text(self._file, (name, value, sign), {}) for name, value, sign in side.assigned}
        used = [node.value for _, value, _ in side.assigned[1:] for node in self._file.nodes(cst.Name, value)]
        before = [name for name, _, _ in side.assigned[:-1]]
        if len(made) < len(side.assigned) or not made.keys() <= set(names) or set(before) & set(used):
            raise Unsuitable(ONE_TENSOR)
        values = [new_tensor(made.get(name, name)) for name in names]
        return values[0] if len(values) == 1 else f"({', '.join(values)})"

    def _written(self, lines: Sequence[str]) -> Edit:
        indent, end = self._file.indent(self._if), self._file.newline
        if self._outer is not None:
            lines = [f"if {self._outer}:", *(f"{self._file.indent_unit}{line}" for line in lines)]
        text = "".join(f"{indent}{line}{end}" for line in lines)
        return self._file.replace_lines(self._if, self._last, text)

    def _sides(self) -> tuple[BranchSide, BranchSide]:
        taken = self._side(statements_of(self._if.body))
        if self._if.orelse is not None:
            assert isinstance(self._if.orelse, cst.Else)
            other = self._side(statements_of(self._if.orelse.body))
        elif taken.returned is not None:
            other = self._side(self._following())
        else:
            other = BranchSide()
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

    def _side(self, statements: Sequence[cst.CSTNode]) -> BranchSide:
        side = BranchSide()
        for statement in statements:
            if side.returned is not None:
                raise Unsuitable("a statement follows a `return`")
            if isinstance(statement, cst.Return) and statement.value is not None:
                side.returned = statement.value
                check_expression(self._file, statement.value)
            elif self._is_effect(statement):
                self._check_effect(side, statement)
                side.effects.append(statement)
            elif not isinstance(statement, cst.Pass):
                side.assigned.append(self._assignment(statement))
        return side

    def _check_effect(self, side: BranchSide, statement: cst.CSTNode) -> None:
        """Raises where an effect reads what its side has set: the effect's function has the value from before."""
        nodes = [node for kind in (cst.Name, cst.Attribute) for node in self._file.nodes(kind, statement)]
        if before := {self._file.code(node) for node in nodes} & set(side.assigned_names):
            raise Unsuitable(f"a side shows `{min(before)}`, which it has set")

    def _assignment(self, statement: cst.CSTNode) -> tuple[str, cst.BaseExpression, str | None]:
        """Name, expression, and the operator of an augmented assignment."""
        if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
            target, operator = statement.targets[0].target, None
        elif isinstance(statement, cst.AugAssign):
            target, operator = statement.target, self._file.code(statement.operator).rstrip("=").strip()
        else:
            raise Unsuitable(effect_of(self._file.code(statement)))
        text = self._file.code(target)
        if not (isinstance(target, cst.Name) or _STATE.fullmatch(text)):
            raise Unsuitable(effect_of(self._file.code(statement)))
        check_expression(self._file, statement.value)
        return text, statement.value, operator

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
        if not merged and self._taken.returned is None and not (self._taken.effects or self._other.effects):
            raise Unsuitable("neither side sets a name that is read afterwards")
        return merged

    def _read_afterwards(self, name: str) -> bool:
        if _STATE.fullmatch(name):
            return True
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
        if _STATE.fullmatch(name):
            return True
        start = self._file.range(self._if)[0]
        names = (node for node in self._file.nodes(cst.Name, self._function) if node.value == name)
        return any(self._file.range(node)[0] < start for node in names)

    def _head(self, wheres: Sequence[str]) -> list[str]:
        """The line that names the condition, where it is used more than once; else it is put where it is used."""
        uses = sum(line.count(CONDITION) for line in [*self._lines, *wheres])
        text = self._name("condition") if uses > 1 else self._condition
        for lines in (self._lines, wheres):
            lines[:] = [line.replace(CONDITION, text) for line in lines]  # type: ignore[index]  # both are lists
        return [f"{text} = {self._condition}"] if uses > 1 else []

    def _name(self, wanted: str) -> str:
        """A name that the function does not use."""
        return self._file.free_name(wanted, inside=self._function)

    def _where(self, name: str) -> str:
        values = [self._value(side, name, suffix) for side, suffix in ((self._taken, "if"), (self._other, "else"))]
        return f"{name} = torch.where({CONDITION}, {values[0]}, {values[1]})"

    def _returned(self) -> str:
        sides = []
        for side, suffix in ((self._taken, "if"), (self._other, "else")):
            names = self._compute(side, suffix)
            assert side.returned is not None
            parts = tuple_parts(side.returned)
            sides.append([renamed(self._file, part, names) for part in parts])
        if len(sides[0]) != len(sides[1]):
            raise Unsuitable("the two sides return another number of values")
        return ", ".join(a if a == b else f"torch.where({CONDITION}, {a}, {b})" for a, b in zip(*sides, strict=True))

    def _value(self, side: BranchSide, name: str, suffix: str) -> str:
        """The value of a name on a side: an expression, where the last assignment is that and nothing reads it."""
        if name not in side.assigned_names:
            return name
        last = side.assigned[-1]
        others = [other for other in side.assigned_names if other != name and self._read_afterwards(other)]
        if last[0] == name and not others:
            names = self._compute(side, suffix, side.assigned[:-1])
            return assigned_text(self._file, last, names)
        return self._compute(side, suffix)[name]

    def _compute(
        self,
        side: BranchSide,
        suffix: str,
        assigned: Sequence[tuple[str, cst.BaseExpression, str | None]] | None = None,
    ) -> dict[str, str]:
        """Write the lines that compute a side; its names with what they are called there."""
        wanted = side.assigned if assigned is None else assigned
        names = self._guarded(side, suffix)
        for item in wanted:
            text = assigned_text(self._file, item, names)
            plain = item[0].rpartition(".")[2]
            own = self._name(f"{plain}_{suffix}") if self._keeps(item[0]) else item[0]
            line = f"{own} = {text}"
            if line not in self._lines:
                self._lines.append(line)
            names[item[0]] = own
        return names

    def _keeps(self, name: str) -> bool:
        """Whether a name has a value that the other side, or the code behind, still needs."""
        both = name in self._taken.assigned_names and name in self._other.assigned_names
        return both or self._read_afterwards(name) or self._defined_before(name)

    def _guarded(self, side: BranchSide, suffix: str) -> dict[str, str]:
        """Harmless operands for a side: 1 where it is not taken."""
        expressions = [expression for _, expression, _ in side.assigned]
        expressions += [side.returned] if side.returned is not None else []
        names = {}
        for name in risky_names(self._file, expressions):
            if not self._defined_before(name):
                continue
            own = self._name(f"safe_{name}" if suffix == "if" else f"safe_{name}_else")
            order = f"{name}, 1.0" if suffix == "if" else f"1.0, {name}"
            line = f"{own} = torch.where({CONDITION}, {order})"
            if line not in self._lines:
                self._lines.insert(0, line)
            names[name] = own
        return names


def statements_of(block: cst.BaseSuite) -> list[cst.CSTNode]:
    """The simple statements of a block. Raises `Unsuitable` if it has others."""
    if isinstance(block, cst.SimpleStatementSuite):
        return list(block.body)
    return [part for line in block.body for part in _parts(line)]


def _parts(line: cst.CSTNode) -> list[cst.CSTNode]:
    if not isinstance(line, cst.SimpleStatementLine):
        raise Unsuitable("a side has a loop, a `with`, or another `if`")
    return list(line.body)
