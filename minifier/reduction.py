"""Reduces a failing graph: first its operations, then its inputs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, MutableMapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from minifier.anatomy import Anatomy, dissect
from minifier.errors import ReductionError
from minifier.graphs import Case, Fails, GraphProblem, ask, canonical, own
from minifier.launches import with_launches
from minifier.search import (
    Budget,
    Candidate,
    Ledger,
    Oracle,
    Outcome,
    ProgressCallback,
    reduce_parts,
    sweep_parts,
    voting,
)
from minifier.simplify import CaseProblem, simplify
from minifier.tensors import check_inputs

__all__ = ["Reduction", "reduce_graph"]


@dataclass(frozen=True, slots=True)
class Reduction:
    """A smaller graph that fails in the same way, and inputs for it.

    `trials` counts the calls of `fails`, `cached` the answers that came from the memo. `minimal`: no single operation
    can be removed (each was tried); False if the budget ended the search. `memo` resumes the search. `refused` holds
    the exceptions that `fails` raised on candidates; they count as "not the same failure".
    """

    graph_module: fx.GraphModule
    inputs: list[Any]
    trials: int
    minimal: bool
    cached: int = 0
    memo: MutableMapping[str, bool] = field(default_factory=dict)
    refused: tuple[Exception, ...] = ()


@dataclass(frozen=True, slots=True)
class _Setting:
    fails: Fails
    ledger: Ledger
    refused: list[Exception]
    executor: Executor | None
    width: int


def reduce_graph(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    fails: Fails,
    *,
    simplify_inputs: bool = True,
    budget: Budget | None = None,
    suspects: Iterable[Collection[str]] = (),
    votes: int = 1,
    memo: MutableMapping[str, bool] | None = None,
    progress: ProgressCallback | None = None,
    executor: Executor | None = None,
    width: int = 1,
) -> Reduction:
    """Reduce an FX graph on which `fails(graph_module, inputs)` is true to a 1-minimal one.

    `fails` gets copies and may change them. An exception of `fails` on the whole graph is raised again; on a candidate
    it counts as "not the same failure" and is kept in `Reduction.refused`. `suspects` are sets of node names to try
    first. `votes` calls `fails` up to that often per candidate and takes the majority. `memo` is the memo of an earlier
    `Reduction`, or an empty mapping to fill: a resumed search repeats no trial. With an `executor` of threads, `width`
    candidates run at the same time.

    Raises `ReductionError` if the whole graph does not fail, or does not run uncompiled on these inputs.
    """
    _check(gm, inputs)
    gm = with_launches(gm)
    ledger = Ledger(memo, budget, progress)
    asked = fails if votes == 1 else _voting(fails, votes)
    setting = _Setting(asked, ledger, [], executor, width)
    whole = Case(gm, tuple(inputs))
    _check_fails(setting, whole)
    anatomy = dissect(gm, inputs)
    case, minimal = _reduce_nodes(anatomy, whole, setting, suspects)
    if simplify_inputs and minimal:
        case, minimal = _simplify(case, setting)
    return Reduction(
        graph_module=case.module,
        inputs=list(case.inputs),
        trials=ledger.calls,
        minimal=minimal,
        cached=ledger.hits,
        memo=ledger.memo,
        refused=tuple(setting.refused),
    )


def _check(gm: fx.GraphModule, inputs: Sequence[Any]) -> None:
    if not isinstance(gm, fx.GraphModule):
        raise ReductionError(f"a torch.fx.GraphModule is needed, not a {type(gm).__name__}: trace it first")
    check_inputs(inputs)
    places = sum(node.op == "placeholder" for node in gm.graph.nodes)
    if places != len(inputs):
        raise ReductionError(f"the graph has {places} placeholders and {len(inputs)} inputs were given")


def _voting(fails: Fails, votes: int) -> Fails:
    def on_case(case: Case) -> bool:
        copied = own(case)
        return fails(copied.module, list(copied.inputs))

    majority = voting(on_case, votes)
    return lambda module, values: majority(Case(module, tuple(values)))


def _check_fails(setting: _Setting, whole: Case) -> None:
    """Check that the whole graph fails. Raises `ReductionError` if not, and any exception of the oracle."""
    ledger, key = setting.ledger, f"whole {canonical(whole)}"
    raised: list[Exception] = []
    ledger.stage = "whole"
    if key not in ledger.memo:
        ledger.spend()
        failed = ask(setting.fails, whole, raised)
        if raised:
            raise raised[0]
        ledger.memo[key] = failed
    if not ledger.memo[key]:
        raise ReductionError(
            "fails() is false for the whole graph: there is no failure to keep; check fails() or inputs"
        )


def _reduce_nodes(
    anatomy: Anatomy, whole: Case, setting: _Setting, suspects: Iterable[Collection[str]]
) -> tuple[Case, bool]:
    problem = GraphProblem(anatomy, whole.inputs, setting.fails, setting.refused)
    outcome = reduce_parts(
        problem,
        setting.ledger,
        suggested=[_parts_named(anatomy, names) for names in suspects],
        executor=setting.executor,
        width=setting.width,
    )
    if outcome.candidate is None:
        return whole, outcome.minimal
    if outcome.minimal and anatomy.firm != anatomy.groups:
        return _refine(problem, outcome, whole, setting)
    return problem.case(outcome.candidate), outcome.minimal


def _refine(problem: GraphProblem, outcome: Outcome, whole: Case, setting: _Setting) -> tuple[Case, bool]:
    """Try to remove single operations from groups that share a written storage: not all of them may be needed."""
    if outcome.candidate is None:
        return whole, outcome.minimal
    anatomy = problem.anatomy.refined()
    finer = GraphProblem(anatomy, whole.inputs, setting.fails, setting.refused)
    kept = frozenset(anatomy.group_of[node] for node in problem.nodes(outcome.candidate))
    start = Candidate(kept, outcome.candidate.joined)
    refined = sweep_parts(finer, start, setting.ledger, executor=setting.executor, width=setting.width)
    if refined.candidate is None:
        return problem.case(outcome.candidate), refined.minimal
    return finer.case(refined.candidate), refined.minimal


def _simplify(case: Case, setting: _Setting) -> tuple[Case, bool]:
    """Simplify, then remove operations that are no longer needed. Repeat while any were removed."""
    oracle: Oracle[Case] = Oracle(CaseProblem(setting.fails, setting.refused), setting.ledger)
    while True:
        case, complete = simplify(oracle, case)
        if not complete:
            return case, False
        smaller, minimal = _sweep_nodes(case, setting)
        if smaller is case or not minimal:
            return smaller, minimal
        case = smaller


def _sweep_nodes(case: Case, setting: _Setting) -> tuple[Case, bool]:
    anatomy = dissect(case.module, case.inputs).refined()
    problem = GraphProblem(anatomy, case.inputs, setting.fails, setting.refused)
    start = Candidate(frozenset(problem.parts))
    outcome = sweep_parts(problem, start, setting.ledger, executor=setting.executor, width=setting.width)
    if outcome.candidate is None or outcome.candidate.kept == start.kept:
        return case, outcome.minimal
    return problem.case(outcome.candidate), outcome.minimal


def _parts_named(anatomy: Anatomy, names: Collection[str]) -> frozenset[int]:
    wanted = set(names)
    return frozenset(part for node, part in anatomy.group_of.items() if anatomy.nodes[node].name in wanted)
