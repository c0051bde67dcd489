"""An `if` statement with `elif`, or with another `if` as a whole side: nested calls of `torch.where`. Or the first side
by itself, chosen behind what the others do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import libcst as cst

from dynadiag.fixes.edits import Edit, ParsedSource
from dynadiag.fixes.rewrites.branch_statement import CONDITION, ONE_TENSOR, BranchSide, BranchStatement, statements_of
from dynadiag.fixes.rewrites.conditions import Unsuitable, condition_text
from dynadiag.fixes.rewrites.side_expressions import assigned_text, check_expression, risky_names


def forms_of(found: cst.If) -> tuple[type[BranchStatement], ...]:
    """Return the forms to try for the statement, in order."""
    if isinstance(found.orelse, cst.If):
        return NestedBranch, ElifBranch
    return (NestedBranch if any(map(only_if, _blocks(found))) else BranchStatement,)


def wholes(file: ParsedSource, found: cst.If) -> Iterator[cst.If]:
    """The `if` of an `elif`, behind those of which it is a whole side. Their conditions may be no tensors."""
    above = file.parent(found)
    while isinstance(above, cst.If) and above.orelse is found:
        found, above = above, file.parent(above)
    owner = file.parent(above) if isinstance(above, cst.IndentedBlock) and only_if(above) is found else None
    outer = file.parent(owner) if isinstance(owner, cst.Else) else owner
    if isinstance(outer, cst.If):
        yield from wholes(file, outer)
    yield found


class NestedBranch(BranchStatement):
    """An `if` with `elif`, or with another `if` as a whole side. Its leaves are the sides without one."""

    def _split(self, test: cst.BaseExpression, position: int) -> tuple[str | None, cst.BaseExpression]:
        del position
        return None, test

    def _sides(self) -> tuple[BranchSide, BranchSide]:
        self.tests = []
        self._leaves = list(self._leaves_under(self._if, ()))
        return self._leaves[0][1], self._leaves[-1][1]

    def _leaves_under(self, found: cst.If, taken: tuple[tuple[int, bool], ...]) -> Iterator[_Leaf]:
        """Each innermost side, with the conditions that lead to it: their numbers, and whether they hold."""
        number = len(self.tests)
        self.tests.append(found.test)
        yield from self._leaves_of(found.body, (*taken, (number, True)))
        if isinstance(found.orelse, cst.If):
            yield from self._leaves_under(found.orelse, (*taken, (number, False)))
        elif found.orelse is not None:
            yield from self._leaves_of(found.orelse.body, (*taken, (number, False)))
        else:
            yield (*taken, (number, False)), BranchSide()

    def _leaves_of(self, block: cst.BaseSuite, taken: tuple[tuple[int, bool], ...]) -> Iterator[_Leaf]:
        if (inner := only_if(block)) is not None:
            yield from self._leaves_under(inner, taken)
        else:
            yield taken, self._side(statements_of(block))

    def edit(self, first: str | None = None) -> Edit:
        """The edit of the whole statement."""
        assert first is None
        names = [self._name(f"condition_{number}") for number in range(1, len(self.tests) + 1)]
        targets = {name for _, side in self._leaves for name in side.assigned_names}
        if len(targets) != 1 or any(len(side.assigned) > 1 or side.returned for _, side in self._leaves):
            raise Unsuitable("it has an `elif` or another `if`, and its sides do more than to set one name")
        target = targets.pop()
        text = ""
        for taken, side in reversed(self._leaves):
            value = self._guarded_text(
                side, target, " & ".join(names[i] if holds else f"~{names[i]}" for i, holds in taken)
            )
            # The leaves before this one have all cases in which a condition holds that must not hold here.
            condition = " & ".join(names[number] for number, holds in taken if holds)
            text = f"torch.where({condition}, {value}, {text})" if text else value
        heads = [f"{name} = {condition_text(self._file, test)}" for name, test in zip(names, self.tests, strict=True)]
        return self._written([*heads, f"{target} = {text}"])

    def cond(self) -> Edit:
        """There is none: `torch.cond` has two sides."""
        raise Unsuitable(ONE_TENSOR)

    def _guarded_text(self, side: BranchSide, target: str, taken: str) -> str:
        """What a side assigns, with 1 for operands that may do harm where it is not taken."""
        if not side.assigned:
            if not self._defined_before(target):
                raise Unsuitable(f"`{target}` has a value on one side alone")
            return target
        item = side.assigned[0]
        risky = [name for name in risky_names(self._file, [item[1]]) if self._defined_before(name)]
        return assigned_text(self._file, item, {name: f"torch.where({taken}, {name}, 1.0)" for name in risky})


class ElifBranch(BranchStatement):
    """An `if` whose first side computes, and whose `elif` stays an `if` of its own, which always runs: its conditions
    may be no tensors. It sets nothing that the first side does not set.
    """

    def _split(self, test: cst.BaseExpression, position: int) -> tuple[str | None, cst.BaseExpression]:
        if position >= self._file.range(test)[1]:
            raise Unsuitable("the graph breaks behind its first side")
        return None, test

    def _sides(self) -> tuple[BranchSide, BranchSide]:
        rest = self._if.orelse
        assert isinstance(rest, cst.If)
        self._rest = rest
        blocks = [rest.body]
        while (behind := rest.orelse) is not None:
            blocks.append(behind.body)
            if isinstance(behind, cst.Else):
                break
            rest = behind
            check_expression(self._file, rest.test)
        check_expression(self._file, self._rest.test)
        others = [self._side(statements_of(block)) for block in blocks]
        taken, set_there = self._side(statements_of(self._if.body)), [item for side in others for item in side.assigned]
        harmful = risky_names(self._file, [value for _, value, _ in set_there])
        in_place = [name for name, _, sign in set_there if sign is not None]
        if taken.returned or any(side.returned for side in others) or harmful or in_place or not set_there:
            raise Unsuitable("what is behind the first side does more than to set names")
        if {name for name, _, _ in set_there} - set(taken.assigned_names):
            raise Unsuitable("what is behind the first side sets another name")
        return taken, BranchSide()

    def edit(self, first: str | None = None) -> Edit:
        """Return the edit of the whole statement: the first side, the other branches, and the choice between them."""
        assert first is None
        self._lines = []
        values = self._compute(self._taken, "if")
        wheres = [f"{name} = torch.where({CONDITION}, {values[name]}, {name})" for name in self._merged()]
        first_lines = [*self._head(wheres), *self._lines]
        start, end = self._file.range(self._rest)
        comments = [line.comment.value for line in self._rest.leading_lines if line.comment is not None]
        edit = self._written([*first_lines, *comments, "\0", *wheres])
        return replace(edit, text=edit.text.replace("\0", self._file.text[start:end].removeprefix("el").rstrip()))

    def cond(self) -> Edit:
        """There is none: the rest is no value."""
        raise Unsuitable(ONE_TENSOR)


_Leaf = tuple[tuple[tuple[int, bool], ...], BranchSide]


def _blocks(found: cst.If) -> list[cst.BaseSuite]:
    return [found.body, *([found.orelse.body] if isinstance(found.orelse, cst.Else) else [])]


def only_if(block: cst.BaseSuite) -> cst.If | None:
    """The `if` that is all of a block."""
    only = block.body[0] if len(block.body) == 1 else None
    return only if isinstance(only, cst.If) else None
