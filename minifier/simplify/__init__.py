"""Simplifies a reduced graph: shapes, dtypes, strides, gradients, values, inputs and outputs.

Each pass yields variants of a case. The first variant that runs uncompiled and still fails is taken.
"""

from __future__ import annotations

from minifier.graphs import Case
from minifier.launches import kernel_of
from minifier.search import BudgetSpentError, Oracle
from minifier.simplify.carries import fewer_carries
from minifier.simplify.cases import CaseProblem, Simplifier, Variants
from minifier.simplify.shapes import all_sizes, one_axis, one_dimension, one_size
from minifier.simplify.structure import (
    fewer_outputs,
    inferred_views,
    inlined_modules,
    lifted_attributes,
    merged_inputs,
    rounder_scalars,
    static_sizes,
    unread_values,
)
from minifier.simplify.subgraphs import fewer_operands, smaller_subgraphs
from minifier.simplify.values import (
    KINDS,
    contiguous,
    fillable,
    filled,
    in_float32,
    plain_values,
    unshared,
    without_grad,
)
from minifier.simplify.vmaps import given_values, single_results

__all__ = ["CaseProblem", "simplify"]

_PASSES: tuple[tuple[str, Variants], ...] = (
    ("outputs", fewer_outputs),
    ("outputs", unread_values),
    ("subgraphs", single_results),
    ("subgraphs", given_values),
    ("subgraphs", smaller_subgraphs),
    ("subgraphs", fewer_operands),
    ("subgraphs", fewer_carries),
    ("modules", inlined_modules),
    ("constants", lifted_attributes),
    ("sizes", static_sizes),
    ("views", inferred_views),
    ("storage", unshared),
    ("shapes", all_sizes),
    ("shapes", one_size),
    ("shapes", one_axis),
    ("shapes", one_dimension),
    ("dtypes", in_float32),
    ("strides", contiguous),
    ("gradients", without_grad),
    ("scalars", rounder_scalars),
    ("inputs", merged_inputs),
)
# A Triton kernel takes sizes and strides as plain numbers. If only its tensors change, it accesses memory outside them.
_BESIDE_KERNELS = ("outputs", "gradients")


def simplify(oracle: Oracle[Case], case: Case) -> tuple[Case, bool]:
    """Simplify a failing case: the simplest variant found, and whether the budget allowed to try all of them."""
    simplifier = Simplifier(oracle, case)
    passes = _PASSES
    if any(kernel_of(node) is not None for node in case.module.graph.nodes):
        passes = tuple(one for one in _PASSES if one[0] in _BESIDE_KERNELS)
    try:
        for name, variants in passes:
            oracle.ledger.stage = name
            simplifier.take_all(variants)
        oracle.ledger.stage = "values"
        _fill(simplifier)
    except BudgetSpentError:
        return simplifier.case, False
    return simplifier.case, True


def _fill(simplifier: Simplifier) -> None:
    """Fill all inputs in one way. If that passes, fill each in the simplest way that still fails, if there is one."""
    if simplifier.take(plain_values):
        return
    start = simplifier.case
    kinds: dict[int, str] = {}
    for place in fillable(start):
        for kind in KINDS:
            tried = {**kinds, place: kind}
            if simplifier.offer(filled(start, tried)):
                kinds = tried
                break
