"""Reduction of a list of parts under an oracle. Knows nothing of torch, graphs or programs.

problem   Candidate, the problem's protocol, Budget, Progress
oracle    memo, budget and counters; candidates in parallel; voting
passes    functions (problem, oracle, state) -> state
reduction the passes put together
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
