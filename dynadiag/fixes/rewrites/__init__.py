"""The catalogue: one module for each rewrite. Candidates of the first are tried first."""

from __future__ import annotations

from dynadiag.fixes.candidate import Rewrite, at_break
from dynadiag.fixes.rewrites import (
    branches,
    buffer_choices,
    chances,
    check_messages,
    conditional_effects,
    config_lines,
    dynamic_sizes,
    effects,
    effects_behind,
    expert_loops,
    gradient_flags,
    grown_lists,
    known_numbers,
    library_calls,
    library_properties,
    masked_writes,
    number_arguments,
    number_attributes,
    number_indices,
    numbers,
    numpy_calls,
    outer_contexts,
    printing,
    python_operators,
    requested_breaks,
    row_ranges,
    segment_attention,
    setups,
    size_checks,
    splits,
    timers,
    two_functions,
    while_compiling,
)
from dynadiag.fixes.rewrites.conditions import assert_at, call_at, if_around, if_or_assert_at, subscript_at
from dynadiag.fixes.rewrites.gradient_flags import flag_at
from dynadiag.fixes.rewrites.outer_contexts import with_at
from dynadiag.fixes.rewrites.setups import setup_at

__all__ = ["CATALOGUE"]

_PRINTS = ("print.reorder", "print.as_text", "warn.reorder", "log.afterwards")
_BRANCHES = ("branch.where", "branch.cond", "number.where", "number.cond")
CATALOGUE = (
    Rewrite("requested_breaks", at_break(call_at, requested_breaks.candidates), ("asked.remove",)),
    Rewrite("setups", at_break(setup_at, setups.candidates)),
    Rewrite("expert_loops", at_break(call_at, expert_loops.candidates)),
    Rewrite("row_ranges", at_break(subscript_at, row_ranges.candidates)),
    Rewrite("number_indices", at_break(subscript_at, number_indices.candidates), ("item.index",)),
    Rewrite("segment_attention", at_break(call_at, segment_attention.candidates)),
    Rewrite(
        "printing",
        at_break(call_at, printing.candidates),
        ("print.reorder", "print.as_text", "warn.reorder", "log.afterwards"),
    ),
    Rewrite("tensor_checks", at_break(call_at, library_calls.tensor_checks)),
    Rewrite("check_messages", at_break(check_messages.message_at, check_messages.candidates)),
    Rewrite("gradient_flags", at_break(flag_at, gradient_flags.candidates)),
    Rewrite("chances", at_break(if_around, chances.candidates), ("chance.branch",)),
    Rewrite("buffer_choices", at_break(if_around, buffer_choices.candidates)),
    Rewrite("masked_writes", at_break(if_around, masked_writes.candidates), ("branch.masked",)),
    Rewrite("mask_indices", at_break(call_at, masked_writes.index_candidates)),
    Rewrite("mask_copies", at_break(subscript_at, masked_writes.copy_candidates)),
    Rewrite("copies", at_break(call_at, library_calls.copies)),
    Rewrite("object_copies", at_break(call_at, while_compiling.object_copies)),
    Rewrite("uniform_bounds", at_break(call_at, library_calls.uniform_bounds)),
    Rewrite("python_calls", at_break(call_at, library_calls.python_calls)),
    Rewrite("rotations", at_break(call_at, library_calls.rotations)),
    Rewrite("counts", at_break(call_at, library_calls.counts)),
    Rewrite("assertions", at_break(assert_at, conditional_effects.assertions)),
    Rewrite("kept_numbers", effects_behind.kept_numbers, ("item.kept", "item.afterwards")),
    Rewrite("numbers", at_break(call_at, numbers.candidates), ("item.tensor",)),
    Rewrite("numpy_calls", at_break(call_at, numpy_calls.candidates), ("numpy.torch",)),
    Rewrite("conditional_effects", at_break(if_or_assert_at, conditional_effects.candidates)),
    Rewrite(
        "branches",
        at_break(if_around, branches.candidates),
        ("branch.where", "branch.cond", "number.where", "number.cond"),
    ),
    Rewrite("object_effects", at_break(if_around, conditional_effects.object_candidates)),
    Rewrite("outer_contexts", at_break(with_at, outer_contexts.candidates), ("context.outside",)),
    Rewrite("timers", at_break(call_at, timers.candidates)),
    Rewrite("library_properties", library_properties.candidates),
    Rewrite("known_numbers", at_break(known_numbers.expression_at, known_numbers.candidates)),
    Rewrite("config_lines", config_lines.candidates, ("item.capture", "shape.capture", "log.ignore")),
    Rewrite("size_checks", at_break(call_at, size_checks.candidates), ("item.capture",)),
    Rewrite("python_operators", at_break(python_operators.function_at, python_operators.candidates)),
    Rewrite("splits", splits.candidates),
    Rewrite("effects", effects.candidates),
    Rewrite("dynamic_sizes", dynamic_sizes.candidates, ("size.changed", "size.many", "size.computed")),
    Rewrite("grown_lists", grown_lists.candidates, ("items.length",)),
    Rewrite("number_arguments", number_arguments.candidates, ("value.integer", "value.float")),
    Rewrite("number_attributes", number_attributes.candidates, ("value.integer_attribute", "value.float")),
    Rewrite("two_functions", two_functions.candidates),
    Rewrite("effects_behind", effects_behind.candidates, ("item.kept", "item.afterwards")),
)
