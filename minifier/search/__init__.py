"""Reduces a list of parts with an oracle that says which subsets fail. Independent of torch.

problem       which parts a candidate keeps, the protocol of a problem, budget and progress
oracle        memo, budget and counters; parallel candidates; majority votes
passes        functions (problem, oracle, state) -> state
reduce_parts  runs the passes
"""

from __future__ import annotations

from minifier.search.oracle import BudgetSpentError, Oracle, SearchContext, majority_vote
from minifier.search.problem import (
    Budget,
    PartSelection,
    PartsProblem,
    ProgressCallback,
    ReductionProblem,
    ReductionProgress,
)
from minifier.search.reduce_parts import ReducedParts, reduce_parts, sweep_parts

__all__ = [
    "Budget",
    "BudgetSpentError",
    "Oracle",
    "PartSelection",
    "PartsProblem",
    "ProgressCallback",
    "ReducedParts",
    "ReductionProblem",
    "ReductionProgress",
    "SearchContext",
    "majority_vote",
    "reduce_parts",
    "sweep_parts",
]
