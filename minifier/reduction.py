"""Reduces a failing graph: first its operations, then its inputs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from minifier.errors import ReductionError
from minifier.graph_analysis import GraphAnalysis, analyze
from minifier.graph_problem import Case, CaseOracle, Fails, FailsEach, GraphProblem, case_key, copy_case
from minifier.search import (
    Budget,
    Oracle,
    PartSelection,
    ProgressCallback,
    ReducedParts,
    SearchContext,
    majority_vote,
    reduce_parts,
    sweep_parts,
)
from minifier.simplify import CaseProblem, simplify
from minifier.tensors import check_inputs
from minifier.triton_launches import replace_kernel_calls


@dataclass(frozen=True, slots=True)
class Reduction:
    """A smaller graph that fails in the same way, and inputs for it.

    `trials` counts the calls of `fails`, `cached` the answers that came from the memo. `minimal`: no single operation
    can be removed (each was tried); False if the budget ended the search. `memo` resumes the search. `oracle_errors`
    holds the exceptions that `fails` raised on candidates; they count as "not the same failure".
    """

    graph_module: fx.GraphModule
    inputs: list[Any]
    trials: int
    minimal: bool
    cached: int = 0
    memo: MutableMapping[str, bool] = field(default_factory=dict)
    refused: tuple[Exception, ...] = ()


@dataclass(frozen=True, slots=True)
class _SearchSetup:
    oracle: CaseOracle
    context: SearchContext
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
    fails_each: FailsEach | None = None,
    width: int = 1,
) -> Reduction:
    """Reduce an FX graph on which `fails(graph_module, inputs)` is true to a 1-minimal one.

    `fails` gets copies and may change them. An exception of `fails` on the whole graph is raised again; on a candidate
    it counts as "not the same failure" and is kept in `Reduction.refused`. `suspects` are sets of node names to try
    first. `votes` calls `fails` up to that often per candidate and takes the majority. `memo` is the memo of an earlier
    `Reduction`, or an empty mapping to fill: a resumed search repeats no trial. With `fails_each`, up to `width`
    candidates are asked for at once.

    Raises `ReductionError` if the whole graph does not fail, or does not run uncompiled on these inputs.
    """
    _check(gm, inputs)
    gm = replace_kernel_calls(gm)
    ledger = SearchContext(memo, budget, progress)
    oracle = CaseOracle(fails, fails_each) if votes == 1 else CaseOracle(_majority_of(fails, votes))
    setting = _SearchSetup(oracle, ledger, 1 if oracle.each is None else width)
    whole = Case(gm, tuple(inputs))
    _check_fails(setting, whole)
    anatomy = analyze(gm, inputs)
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
        refused=tuple(oracle.errors),
    )


def _check(gm: fx.GraphModule, inputs: Sequence[Any]) -> None:
    if not isinstance(gm, fx.GraphModule):
        raise ReductionError(f"a torch.fx.GraphModule is needed, not a {type(gm).__name__}: trace it first")
    check_inputs(inputs)
    places = sum(node.op == "placeholder" for node in gm.graph.nodes)
    if places != len(inputs):
        raise ReductionError(f"the graph has {places} placeholders and {len(inputs)} inputs were given")


def _majority_of(fails: Fails, votes: int) -> Fails:
    def on_case(case: Case) -> bool:
        copied = copy_case(case)
        return fails(copied.module, list(copied.inputs))

    majority = majority_vote(on_case, votes)
    return lambda module, values: majority(Case(module, tuple(values)))


def _check_fails(setting: _SearchSetup, whole: Case) -> None:
    """Check that the whole graph fails. Raises `ReductionError` if not, and any exception of the oracle."""
    ledger, key = setting.context, f"whole {case_key(whole)}"
    ledger.stage = "whole"
    if key not in ledger.memo:
        ledger.spend()
        [failed] = setting.oracle.fails_each([copy_case(whole)])
        if setting.oracle.errors:
            raise setting.oracle.errors[0]
        ledger.memo[key] = failed
    if not ledger.memo[key]:
        raise ReductionError(
            "fails() is false for the whole graph: there is no failure to keep; check fails() or inputs"
        )


def _reduce_nodes(
    anatomy: GraphAnalysis, whole: Case, setting: _SearchSetup, suspects: Iterable[Collection[str]]
) -> tuple[Case, bool]:
    problem = GraphProblem(anatomy, whole.inputs, setting.oracle)
    _note_known(problem, PartSelection(frozenset(problem.parts)), whole, setting)
    outcome = reduce_parts(
        problem,
        setting.context,
        suspects=[_parts_named(anatomy, names) for names in suspects],
        width=setting.width,
    )
    if outcome.candidate is None:
        return whole, outcome.minimal
    if outcome.minimal and anatomy.inseparable_groups != anatomy.groups:
        return _sweep_smallest_groups(problem, outcome, whole, setting)
    return problem.case(outcome.candidate), outcome.minimal


def _sweep_smallest_groups(
    problem: GraphProblem, outcome: ReducedParts, whole: Case, setting: _SearchSetup
) -> tuple[Case, bool]:
    """Try to remove single operations from groups that share a written storage: not all of them may be needed."""
    if outcome.candidate is None:
        return whole, outcome.minimal
    anatomy = problem.analysis.with_smallest_groups()
    finer = GraphProblem(anatomy, whole.inputs, setting.oracle)
    kept = frozenset(anatomy.group_of[node] for node in problem.nodes(outcome.candidate))
    start = PartSelection(kept, outcome.candidate.bypass)
    refined = sweep_parts(finer, start, setting.context, width=setting.width)
    if refined.candidate is None:
        return problem.case(outcome.candidate), refined.minimal
    return finer.case(refined.candidate), refined.minimal


def _simplify(case: Case, setting: _SearchSetup) -> tuple[Case, bool]:
    """Simplify, then remove operations that are no longer needed. Repeat while any were removed."""
    oracle: Oracle[Case] = Oracle(CaseProblem(setting.oracle), setting.context, setting.width)
    while True:
        case, complete = simplify(oracle, case)
        if not complete:
            return case, False
        smaller, minimal = _sweep_nodes(case, setting)
        if smaller is case or not minimal:
            return smaller, minimal
        case = smaller


def _sweep_nodes(case: Case, setting: _SearchSetup) -> tuple[Case, bool]:
    anatomy = analyze(case.module, case.inputs).with_smallest_groups()
    problem = GraphProblem(anatomy, case.inputs, setting.oracle)
    start = PartSelection(frozenset(problem.parts))
    _note_known(problem, start, case, setting)
    outcome = sweep_parts(problem, start, setting.context, width=setting.width)
    if outcome.candidate is None or outcome.candidate.kept == start.kept:
        return case, outcome.minimal
    return problem.case(outcome.candidate), outcome.minimal


def _note_known(problem: GraphProblem, selection: PartSelection, case: Case, setting: _SearchSetup) -> None:
    """Note that a selection fails if it makes a case that is known to fail."""
    if case_key(problem.case(selection)) == case_key(case):
        setting.context.memo[problem.key(selection)] = True


def _parts_named(anatomy: GraphAnalysis, names: Collection[str]) -> frozenset[int]:
    wanted = set(names)
    return frozenset(part for node, part in anatomy.group_of.items() if anatomy.nodes[node].name in wanted)
