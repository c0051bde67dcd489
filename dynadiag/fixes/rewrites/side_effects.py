"""The effects on the sides of an `if` on a tensor's value: which statements are some, and the `if` without them."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from dynadiag.fixes.edits import ParsedSource, callee_name
from dynadiag.fixes.rewrites.branch_statement import BranchStatement
from dynadiag.fixes.rewrites.conditions import Unsuitable, position_of
from dynadiag.fixes.rewrites.effect_function import EffectFunction
from dynadiag.fixes.rewrites.effects import EFFECTS
from dynadiag.fixes.rewrites.printing import prints
from dynadiag.recording.records import Span

__all__ = ["is_effect", "name_of", "split_effects"]


def split_effects(
    file: ParsedSource, found: cst.If, span: Span, chosen: Callable[[cst.CSTNode], bool]
) -> tuple[BranchStatement, EffectFunction]:
    """The `if` without the chosen effects, and the function for these. Raises `Unsuitable` where it has none."""
    if isinstance(found.orelse, cst.If):
        raise Unsuitable("it has an `elif`")
    statement = BranchStatement(file, found, position_of(file, span), chosen)
    function = file.enclosing(found, cst.FunctionDef)
    if not any(side.effects for side in statement.sides) or not isinstance(function, cst.FunctionDef):
        raise Unsuitable("it has no effect")
    return statement, EffectFunction(file, function)


def is_effect(file: ParsedSource, statement: cst.CSTNode) -> bool:
    """Whether a statement prints, keeps, sends or raises."""
    if isinstance(statement, cst.Raise):
        return statement.exc is not None and statement.cause is None
    call = statement.value if isinstance(statement, cst.Expr) else None
    if not isinstance(call, cst.Call):
        return False
    method = isinstance(call.func, cst.Attribute) and EFFECTS.match(callee_name(call) or "") is not None
    return method or prints(file, call)


def name_of(statement: BranchStatement) -> str:
    """What the effects do, for the name of their function. An exception counts most, then the first call."""
    effects = [effect for side in statement.sides for effect in side.effects]
    calls = [effect.value for effect in effects if isinstance(effect, cst.Expr)]
    names = [(callee_name(call) or "").strip("_") for call in calls if isinstance(call, cst.Call)]
    raised = any(isinstance(effect, cst.Raise) for effect in effects)
    return "raise" if raised else next(filter(None, names), "count")
