"""Runs the passes: from a list of parts to a 1-minimal failing subset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minifier.search.oracle import BudgetSpentError, Oracle, SearchContext
from minifier.search.passes import (
    Pass,
    PassState,
    WholeOnlyError,
    connection,
    pairs,
    pin,
    prefix,
    suffix,
    sweep,
    try_suspects,
)
from minifier.search.problem import PartSelection, PartsProblem

_PASSES: tuple[tuple[str, Pass], ...] = (
    ("prefix", prefix),
    ("suffix", suffix),
    ("connection", connection),
    ("pin", pin),
    ("sweep", sweep),
    ("pairs", pairs),
)


@dataclass(frozen=True, slots=True)
class ReducedParts:
    """The result of a reduction. `candidate` is the smallest failing one; None if only the original failed.

    `minimal`: no single part can be removed, each was tried. It is False if the budget ended the search, or if the
    problem rebuilt from all its parts does not fail.
    """

    candidate: PartSelection | None
    minimal: bool


def reduce_parts(
    problem: PartsProblem,
    context: SearchContext | None = None,
    *,
    suspects: Sequence[frozenset[int]] = (),
    width: int = 1,
) -> ReducedParts:
    """Reduce a problem that is known to fail as a whole. Deterministic: the same answers lead to the same trials.

    `suspects` are sets of suspected parts, which are tried first.
    """
    passes = (("witness", try_suspects(tuple(suspects))), *_PASSES)
    return _run(problem, Oracle(problem, context, width), PassState(problem.parts), passes)


def sweep_parts(
    problem: PartsProblem,
    start: PartSelection,
    context: SearchContext | None = None,
    *,
    width: int = 1,
) -> ReducedParts:
    """Remove single parts of a candidate that is known to fail, until none can be removed."""
    state = PassState((), start.kept, start.bypass, start)
    return _run(problem, Oracle(problem, context, width), state, (("sweep", sweep), ("pairs", pairs)))


def _run(
    problem: PartsProblem, oracle: Oracle[PartSelection], state: PassState, passes: Sequence[tuple[str, Pass]]
) -> ReducedParts:
    if not problem.parts:
        return ReducedParts(None, True)
    try:
        for name, run in passes:
            oracle.context.stage = name
            state = run(problem, oracle, state)
    except BudgetSpentError:
        return ReducedParts(oracle.best, False)
    except WholeOnlyError:
        return ReducedParts(None, False)
    return ReducedParts(state.candidate, state.candidate is not None)
