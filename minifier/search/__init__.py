"""Reduces a list of parts with an oracle that says which subsets fail. Independent of torch.

problem       which parts a candidate keeps, the protocol of a problem, budget and progress
oracle        memo, budget and counters; parallel candidates; majority votes
passes        functions (problem, oracle, state) -> state
reduce_parts  runs the passes
"""

from __future__ import annotations

from minifier.search.oracle import BudgetSpentError, Ledger, Oracle, voting
from minifier.search.problem import Budget, Candidate, Oracled, PartsProblem, Progress, ProgressCallback
from minifier.search.reduction import Outcome, reduce_parts, sweep_parts

__all__ = [
    "Budget",
    "BudgetSpentError",
    "Candidate",
    "Ledger",
    "Oracle",
    "Oracled",
    "Outcome",
    "PartsProblem",
    "Progress",
    "ProgressCallback",
    "reduce_parts",
    "sweep_parts",
    "voting",
]
