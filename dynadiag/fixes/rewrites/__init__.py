"""The catalogue: one module for each rewrite. Candidates of the first are tried first."""

from __future__ import annotations

from dynadiag.fixes.candidate import Rewrite
from dynadiag.fixes.rewrites import (
    branches,
    conditional_effects,
    config_lines,
    copies,
    counts,
    dynamic_sizes,
    effects,
    effects_behind,
    library_properties,
    number_arguments,
    number_attributes,
    numbers,
    numpy_calls,
    object_effects,
    outer_contexts,
    printing,
    python_calls,
    requested_breaks,
    rotations,
    size_checks,
    splits,
    timers,
    two_functions,
    uniform_bounds,
)

__all__ = ["CATALOGUE"]

CATALOGUE = (
    Rewrite("requested_breaks", requested_breaks.candidates),
    Rewrite("printing", printing.candidates),
    Rewrite("copies", copies.candidates),
    Rewrite("uniform_bounds", uniform_bounds.candidates),
    Rewrite("python_calls", python_calls.candidates),
    Rewrite("rotations", rotations.candidates),
    Rewrite("counts", counts.candidates),
    Rewrite("numbers", numbers.candidates),
    Rewrite("numpy_calls", numpy_calls.candidates),
    Rewrite("conditional_effects", conditional_effects.candidates),
    Rewrite("branches", branches.candidates),
    Rewrite("object_effects", object_effects.candidates),
    Rewrite("outer_contexts", outer_contexts.candidates),
    Rewrite("timers", timers.candidates),
    Rewrite("library_properties", library_properties.candidates),
    Rewrite("config_lines", config_lines.candidates),
    Rewrite("size_checks", size_checks.candidates),
    Rewrite("splits", splits.candidates),
    Rewrite("effects", effects.candidates),
    Rewrite("dynamic_sizes", dynamic_sizes.candidates),
    Rewrite("number_arguments", number_arguments.candidates),
    Rewrite("number_attributes", number_attributes.candidates),
    Rewrite("two_functions", two_functions.candidates),
    Rewrite("effects_behind", effects_behind.candidates),
)
