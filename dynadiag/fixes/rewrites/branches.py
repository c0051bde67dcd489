"""A branch on the value of a tensor: both sides are computed, and `torch.where` selects one by the condition; or both
are in the graph, and `torch.cond` runs one of them (it draws random numbers, or computes much). This is right if both
sides only compute tensors and assign local names, or attributes of the object: where a side does not set one, it keeps
its value, and one that is a number becomes a buffer. The side that is not taken must not disturb the other: a root, a
logarithm or a division of values that its condition excludes gives infinity, and its gradient times zero is NaN. So
operands of such functions are replaced by 1 where the side is not taken. The proof has to see both sides taken.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from dynadiag.fixes.candidate import Candidate, Condition, Refusal, Site
from dynadiag.fixes.edits import Edit, ParsedSource
from dynadiag.fixes.rewrites.branch_statement import BranchStatement
from dynadiag.fixes.rewrites.conditions import Unsuitable, condition_text, position_of
from dynadiag.fixes.rewrites.nested_branch import ElifBranch, forms_of, wholes
from dynadiag.fixes.rewrites.number_attributes import counters
from dynadiag.fixes.rewrites.side_expressions import check_expression, cond_call, new_tensor, renamed, risky_names
from dynadiag.recording.records import Span

_WHY = "both sides only compute values, and where a side is not taken its operands are harmless"
_WHY_COND = "both sides only compute values, both are in the graph, and only the one that is chosen runs"


def candidates(site: Site[cst.If | cst.IfExp]) -> Iterator[Candidate | Refusal]:
    """`torch.where` for an `if` statement, an early return, or a conditional expression; then `torch.cond`."""
    file, found, span = site.file, site.node, site.problem.span
    yield from _choices(file, found, span, "compute both sides and choose with `torch.where`", _WHY, False)
    yield from _choices(file, found, span, "choose the side with `torch.cond`", _WHY_COND, True)


def _choices(
    file: ParsedSource, found: cst.If | cst.IfExp, span: Span, title: str, why: str, cond: bool
) -> Iterator[Candidate | Refusal]:
    reason = ""
    for whole, form in _forms(file, found):
        try:
            if isinstance(whole, cst.IfExp):
                edit, tests, state = (_cond_expression if cond else _conditional)(file, whole), [whole.test], []
            else:
                statement = form(file, whole, position_of(file, span))
                edit, tests = statement.cond() if cond else statement.edit(), statement.tests
                state = statement.state
            conditions = tuple(Condition(file.name, *file.range(test)) for test in tests)
        except Unsuitable as unsuitable:
            reason = reason if form is ElifBranch else str(unsuitable)
        else:
            kept, numbers = counters(file, whole, state) if isinstance(whole, cst.If) else ((), ())
            yield Candidate(title, "source", (edit, *kept), why, conditions, numbers)
            reason = ""
    if reason and not cond:
        yield Refusal(title, reason)


def _forms(file: ParsedSource, found: cst.If | cst.IfExp) -> Iterator[tuple[cst.If | cst.IfExp, type[BranchStatement]]]:
    """The statements that the branch is part of, each with the forms in which it can be written."""
    for whole in wholes(file, found) if isinstance(found, cst.If) else [found]:
        for form in forms_of(whole) if isinstance(whole, cst.If) else (BranchStatement,):
            yield whole, form


def _conditional(file: ParsedSource, found: cst.IfExp) -> Edit:
    """A conditional expression as a call of `torch.where`."""
    condition = condition_text(file, found.test)
    sides = []
    for expression, order in ((found.body, "{name}, 1.0"), (found.orelse, "1.0, {name}")):
        check_expression(file, expression)
        names = risky_names(file, [expression])
        guards = {name: f"torch.where({condition}, {order.format(name=name)})" for name in names}
        sides.append(renamed(file, expression, guards))
    return file.replace(found, f"torch.where({condition}, {sides[0]}, {sides[1]})")


def _cond_expression(file: ParsedSource, found: cst.IfExp) -> Edit:
    """A conditional expression as a call of `torch.cond`."""
    sides = []
    for expression in (found.body, found.orelse):
        check_expression(file, expression)
        sides.append(new_tensor(file.code(expression)))
    return file.replace(found, cond_call(condition_text(file, found.test), *sides))
