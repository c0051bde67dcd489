"""Runs the passes: from a list of parts to a 1-minimal failing subset."""

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
    """The result of a reduction. `candidate` is the smallest failing one; None if only the original failed.

    `minimal`: no single part can be removed, each was tried. It is False if the budget ended the search, or if the
    problem rebuilt from all its parts does not fail.
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
    """Reduce a problem that is known to fail as a whole. Deterministic: the same answers lead to the same trials.

    `suggested` are sets of suspected parts, which are tried first.
    """
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
    """Remove single parts of a candidate that is known to fail, until none can be removed."""
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
