"""Passes put together: from a list of parts to a 1-minimal failing choice of them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from minifier.search.oracle import BudgetSpentError, Ledger, Oracle
from minifier.search.passes import Pass, State, WholeOnlyError, connection, pairs, pin, prefix, suffix, sweep, witnesses
from minifier.search.problem import Candidate, PartsProblem

__all__ = ["Outcome", "reduce_parts", "sweep_parts"]

_PASSES: tuple[tuple[str, Pass], ...] = (
    ("prefix", prefix),
    ("suffix", suffix),
    ("connection", connection),
    ("pin", pin),
    ("sweep", sweep),
    ("pairs", pairs),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """`candidate` is the smallest that was seen to fail, or None if nothing but the whole was.

    `minimal`: no part of it can be left out, each was tried. False where the budget ended the search, and where not
    even all parts put together again fail.
    """

    candidate: Candidate | None
    minimal: bool


def reduce_parts(
    problem: PartsProblem,
    ledger: Ledger | None = None,
    *,
    suggested: Sequence[frozenset[int]] = (),
    executor: Executor | None = None,
    width: int = 1,
) -> Outcome:
    """Reduce a problem whose whole is known to fail. Deterministic: the same answers give the same questions."""
    passes = (("witness", witnesses(tuple(suggested))), *_PASSES)
    return _run(problem, Oracle(problem, ledger, executor, width), State(problem.parts), passes)


def sweep_parts(
    problem: PartsProblem,
    start: Candidate,
    ledger: Ledger | None = None,
    *,
    executor: Executor | None = None,
    width: int = 1,
) -> Outcome:
    """Leave out single parts of a candidate that is known to fail, until none can be."""
    state = State((), start.kept, start.joined, start)
    return _run(problem, Oracle(problem, ledger, executor, width), state, (("sweep", sweep), ("pairs", pairs)))


def _run(problem: PartsProblem, oracle: Oracle[Candidate], state: State, passes: Sequence[tuple[str, Pass]]) -> Outcome:
    if not problem.parts:
        return Outcome(None, True)
    try:
        for name, run in passes:
            oracle.ledger.stage = name
            state = run(problem, oracle, state)
    except BudgetSpentError:
        return Outcome(oracle.best, False)
    except WholeOnlyError:
        return Outcome(None, False)
    return Outcome(state.candidate, state.candidate is not None)
