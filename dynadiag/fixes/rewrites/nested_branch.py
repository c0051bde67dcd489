"""An `if` statement with `elif`, or with another `if` as a whole side, written as nested calls of `torch.where`."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from dynadiag.fixes.edits import Edit, ParsedSource
from dynadiag.fixes.rewrites.branch_statement import ONE_TENSOR, BranchSide, BranchStatement, statements_of
from dynadiag.fixes.rewrites.conditions import Unsuitable, condition_text
from dynadiag.fixes.rewrites.side_expressions import assigned_text, risky_names


def branch_of(file: ParsedSource, found: cst.If, position: int) -> BranchStatement:
    """The statement in the form that it has. ``position`` is where the break is in the file. Raises `Unsuitable`."""
    nested = isinstance(found.orelse, cst.If) or any(map(only_if, _blocks(found)))
    return (NestedBranch if nested else BranchStatement)(file, found, position)


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


_Leaf = tuple[tuple[tuple[int, bool], ...], BranchSide]


def _blocks(found: cst.If) -> list[cst.BaseSuite]:
    return [found.body, *([found.orelse.body] if isinstance(found.orelse, cst.Else) else [])]


def only_if(block: cst.BaseSuite) -> cst.If | None:
    """The `if` that is all of a block."""
    only = block.body[0] if len(block.body) == 1 else None
    return only if isinstance(only, cst.If) else None
