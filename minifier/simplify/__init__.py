"""Simplifies a reduced graph: shapes, dtypes, strides, gradients, values, inputs and outputs.

Each pass yields variants of a case. The first variant that runs uncompiled and still fails is taken.
"""

from __future__ import annotations

from minifier.graph_problem import Case
from minifier.search import BudgetSpentError, Oracle
from minifier.simplify.loop_carries import fewer_carries
from minifier.simplify.plain_graphs import (
    fewer_elements,
    fewer_outputs,
    folded_constants,
    inferred_views,
    inlined_modules,
    lifted_attributes,
    merged_inputs,
    static_sizes,
    unit_scalars,
    without_unread_rewraps,
)
from minifier.simplify.plain_inputs import (
    FILLS,
    contiguous,
    fill_all_inputs,
    fill_inputs,
    fillable_inputs,
    in_float32,
    non_finite_first,
    without_aliasing,
    without_grad,
)
from minifier.simplify.shapes import keep_last, shrink_all_sizes, shrink_one_axis, shrink_one_dimension, shrink_one_size
from minifier.simplify.simplifier import CaseProblem, Simplifier, Variants
from minifier.simplify.smaller_vmaps import single_results, values_as_operands
from minifier.simplify.subgraphs import fewer_operands, smaller_subgraphs
from minifier.triton_launches import launched_kernel

__all__ = ["CaseProblem", "simplify"]

_PASSES: tuple[tuple[str, Variants], ...] = (
    ("outputs", fewer_outputs),
    ("outputs", without_unread_rewraps),
    ("elements", fewer_elements),
    ("subgraphs", single_results),
    ("subgraphs", values_as_operands),
    ("subgraphs", smaller_subgraphs),
    ("subgraphs", fewer_operands),
    ("subgraphs", fewer_carries),
    ("modules", inlined_modules),
    ("constants", lifted_attributes),
    ("constants", folded_constants),
    ("sizes", static_sizes),
    ("views", inferred_views),
    ("storage", without_aliasing),
    ("values", non_finite_first),
    ("shapes", shrink_all_sizes),
    ("shapes", shrink_one_size),
    ("shapes", shrink_one_axis),
    ("shapes", shrink_one_dimension),
    ("dtypes", in_float32),
    ("strides", contiguous),
    ("gradients", without_grad),
    ("scalars", unit_scalars),
    ("inputs", merged_inputs),
)
# A Triton kernel takes sizes and strides as plain numbers. If only its tensors change, it accesses memory outside them.
_SAFE_WITH_KERNELS = ("outputs", "gradients")


def simplify(oracle: Oracle[Case], case: Case) -> tuple[Case, bool]:
    """Simplify a failing case: the simplest variant found, and whether the budget allowed to try all of them."""
    simplifier = Simplifier(oracle, case)
    passes = _PASSES
    if any(launched_kernel(node) is not None for node in case.module.graph.nodes):
        passes = tuple(one for one in _PASSES if one[0] in _SAFE_WITH_KERNELS)
    try:
        for name, variants in passes:
            oracle.context.stage = name
            simplifier.take_all(variants)
        oracle.context.stage = "values"
        if not _simplify_values(simplifier) and passes is _PASSES:
            oracle.context.stage = "shapes"
            simplifier.take_all(keep_last)
    except BudgetSpentError:
        return simplifier.case, False
    return simplifier.case, True


def _simplify_values(simplifier: Simplifier) -> bool:
    """Fill all inputs in one way. If that passes, fill each in the simplest way that still fails.

    Returns False where an input has none: its values matter, and perhaps only the last of them.
    """
    if simplifier.take_first(fill_all_inputs):
        return True
    start = simplifier.case
    kinds: dict[int, str] = {}
    for place in fillable_inputs(start):
        for kind in FILLS:
            tried = {**kinds, place: kind}
            if simplifier.try_variant(fill_inputs(start, tried)):
                kinds = tried
                break
    return len(kinds) == len(fillable_inputs(start))
