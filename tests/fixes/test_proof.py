"""Each obligation of the proof rejects a candidate that no other one rejects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dynadiag.fixes.candidate import Candidate, Condition
from dynadiag.fixes.observation import CallDiffers, CallsCompared, CompiledOperators
from dynadiag.fixes.problems import FixProblem, RunSummary
from dynadiag.fixes.proof import (
    COMPARISONS,
    MENDABLE,
    RECORDED,
    REGION,
    TIMED,
    Proof,
    UnchangedProgram,
    evidence_of,
    first_objection,
    runs_as_much_compiled,
)
from dynadiag.fixes.trials import ComparedRun, RecordedRun, ReferenceRun
from dynadiag.recording.records import Span
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.signature import Signature

CAUSE = "break GB0124 f: x.item()"
PROBLEM = FixProblem("break", CAUSE, "f.py", Span("f.py", 3), "f", "0/0", "item")
CONDITION = Condition("f.py", 10, 15)
ENDED = Outcome(exit_code=0)


def summary(causes: int, recompiles: int = 1, graphs: int = 2, largest: int = 10) -> RunSummary:
    found = Counter({CAUSE: causes} if causes else {})
    return RunSummary(found, {CAUSE: "f.py:3"}, causes, recompiles, graphs, largest)


BEFORE = RecordedRun(ENDED, summary(1), (PROBLEM,), None, "loss 1\n", 1e-3, CompiledOperators(100, 50))
REFERENCE = ReferenceRun(
    ENDED, Path("r"), (CONDITION,), {(CONDITION.key, True): "zeros", (CONDITION.key, False): "ones"}, 9, "loss 1\n", ""
)
BASELINE = UnchangedProgram(BEFORE, REFERENCE, BEFORE.printed, True, 0)
RECORDED_RUN = RecordedRun(ENDED, summary(0, graphs=1), (), None, "loss 1\n", 1e-3, CompiledOperators(110, 50))
COMPARED_RUN = ComparedRun(ENDED, (), CallsCompared(3, 30, True), "loss 1\n", "")
PROVED = Proof(
    (PROBLEM,), Candidate("t", "source", (), "w", (CONDITION,)), BASELINE, BEFORE.summary, RECORDED_RUN, COMPARED_RUN
)


def differing(what: str, rounding: bool = False) -> Proof:
    return replace(PROVED, compared=replace(COMPARED_RUN, differences=(CallDiffers(0, "zeros", what, "x", rounding),)))


def with_summary(made: RunSummary) -> Proof:
    return replace(PROVED, recorded=replace(RECORDED_RUN, summary=made))


def with_causes(*causes: str) -> RunSummary:
    return replace(summary(0), causes=Counter(causes), places=dict.fromkeys(causes, "f.py:9"))


ONE_SIDE = replace(REFERENCE, sides={(CONDITION.key, True): "zeros"})
REJECTED: dict[str, Proof] = {
    "_ends_alike": replace(PROVED, recorded=replace(RECORDED_RUN, outcome=replace(ENDED, exit_code=1))),
    "_cause_is_gone": with_summary(replace(summary(1), breaks=0)),
    "_no_new_cause": with_summary(with_causes("break GB0170 f: x > 0")),
    "_fewer": with_summary(summary(0, recompiles=2)),
    "_compiles_as_much": with_summary(summary(0, largest=5)),
    "runs_as_much_compiled": replace(PROVED, recorded=replace(RECORDED_RUN, compiled=CompiledOperators(80, 50))),
    "prints_the_same": replace(PROVED, recorded=replace(RECORDED_RUN, printed="loss 2\n")),
    "_writes_the_same_files": replace(PROVED, recorded=replace(RECORDED_RUN, files={"calls.log": "call 1\n"})),
    "_not_slower": replace(PROVED, recorded=replace(RECORDED_RUN, warm=2e-3)),
    "_compared_run_ends_alike": replace(PROVED, compared=replace(COMPARED_RUN, outcome=replace(ENDED, exit_code=-11))),
    "_calls_were_compared": replace(PROVED, compared=replace(COMPARED_RUN, compared=None)),
    **{
        f"_same_{what}": differing(what) for what in ("error", "results", "mutations", "gradients", "random", "printed")
    },
    "_sides_were_seen": replace(PROVED, baseline=replace(BASELINE, reference=ONE_SIDE)),
    "_streams_are_the_same": replace(PROVED, compared=replace(COMPARED_RUN, errors="c\n")),
}
OBLIGATIONS = (*RECORDED, *TIMED, *COMPARISONS)


def test_a_side_on_which_nothing_changes_need_not_be_seen() -> None:
    proof = REJECTED["_sides_were_seen"]  # the true side was seen
    for side in (True, False):
        candidate = replace(proof.candidate, conditions=(replace(CONDITION, sides=(side,)),))
        assert (first_objection(replace(proof, candidate=candidate), OBLIGATIONS) is None) == side


def test_what_no_obligation_rejects_is_proved() -> None:
    assert first_objection(PROVED, OBLIGATIONS) is None


@pytest.mark.parametrize("check", OBLIGATIONS, ids=lambda check: check.__name__)
def test_an_obligation_that_is_left_out_lets_a_wrong_candidate_through(check: Callable[[Proof], str | None]) -> None:
    proof = REJECTED[check.__name__]
    assert first_objection(proof, OBLIGATIONS) is not None
    assert first_objection(proof, tuple(other for other in OBLIGATIONS if other is not check)) is None


def test_a_cause_that_is_gone_already_need_not_go_again() -> None:
    again = replace(PROBLEM, kind="recompile", identity="recompile f: size")
    before = replace(summary(0), causes=Counter([again.identity]))
    for recompiles, right in ((0, True), (1, False)):
        recorded = replace(RECORDED_RUN, summary=summary(0, recompiles))
        proof = replace(PROVED, problems=(again, PROBLEM), before=before, recorded=recorded)
        assert (first_objection(proof, RECORDED) is None) == right


@pytest.mark.parametrize(
    ("type_", "again"),
    [("torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode", True), ("builtins.ValueError", False)],
)
def test_what_torch_itself_fails_on_may_go_with_another_change(type_: str, again: bool) -> None:
    failed = replace(ENDED, exit_code=1, signature=Signature("exception", type_, "Could not guard"))
    proof = replace(PROVED, recorded=replace(RECORDED_RUN, outcome=failed))
    assert (first_objection(proof, MENDABLE) == first_objection(proof, RECORDED)) == again


def test_a_region_may_compile_less_but_has_no_break() -> None:
    less = replace(RECORDED_RUN, compiled=CompiledOperators(10, 5), summary=summary(0, largest=5))
    assert first_objection(replace(PROVED, recorded=less), (*REGION, *COMPARISONS)) is None
    broken = replace(less, summary=replace(with_causes("break GB0170 f: x > 0"), breaks=1))
    assert first_objection(replace(PROVED, recorded=broken), REGION) == "a graph breaks at f.py:9"
    for name in ("_ends_alike", "prints_the_same", "_writes_the_same_files"):
        assert first_objection(REJECTED[name], REGION) is not None
    for name in ("_compared_run_ends_alike", "_calls_were_compared", "_same_results", "_same_gradients"):
        assert first_objection(REJECTED[name], COMPARISONS) is not None


def test_a_limit_of_recompiles_counts_once_their_changes_were_tried() -> None:
    for once, recompiles, last, right in ((50, 1, True, True), (40, 1, True, False), (50, 0, True, False)):
        recorded = replace(RECORDED_RUN, compiled=CompiledOperators(80, once), summary=summary(0, recompiles, 1))
        baseline = replace(BASELINE, recompiles_last=last)
        proof = replace(PROVED, recorded=recorded, baseline=baseline)
        assert (runs_as_much_compiled(proof) is None) == right
        assert runs_as_much_compiled(replace(proof, baseline=BASELINE)) is not None


def test_with_a_condition_an_operator_may_be_gone_for_each_graph_that_is() -> None:
    """`if mask.any():` asks an operator behind each break; without the branch neither is there."""
    for calls, right in ((100, True), (110, False)):
        recorded = replace(RECORDED_RUN, compiled=CompiledOperators(80, 50, calls))
        baseline = replace(BASELINE, recorded=replace(BEFORE, compiled=CompiledOperators(100, 50, 111)))
        candidate = replace(PROVED.candidate, leaves_out_condition=True)
        proof = replace(PROVED, recorded=recorded, baseline=baseline, candidate=candidate)
        assert (runs_as_much_compiled(proof) is None) == right
        assert runs_as_much_compiled(replace(proof, candidate=PROVED.candidate)) is not None


def test_streams_may_be_those_of_the_unchanged_program_compiled() -> None:
    proof = REJECTED["_streams_are_the_same"]
    for errors, right in (("c\n", True), ("d\n", False)):
        compiled = replace(REFERENCE, compiled=replace(COMPARED_RUN, errors=errors))
        found = first_objection(replace(proof, baseline=replace(BASELINE, reference=compiled)), OBLIGATIONS)
        assert (found is None) == right


def test_streams_are_not_compared_where_files_have_lines_of_other_inputs() -> None:
    proof = REJECTED["_streams_are_the_same"]
    writing = replace(proof, baseline=replace(BASELINE, reference=replace(REFERENCE, writes=True)))
    assert first_objection(writing, OBLIGATIONS) is None


def test_streams_are_not_compared_where_the_program_prints_what_other_inputs_left_behind() -> None:
    proof = REJECTED["_streams_are_the_same"]
    kept = replace(REFERENCE, printed="loss 1, 2, 3\n")
    assert first_objection(replace(proof, baseline=replace(BASELINE, reference=kept)), OBLIGATIONS) is None
    rounded = replace(REFERENCE, printed="loss 2\n")
    assert first_objection(replace(proof, baseline=replace(BASELINE, reference=rounded)), OBLIGATIONS) is not None


def test_rounding_is_no_objection_and_is_told() -> None:
    proof = differing("gradients", rounding=True)
    assert first_objection(proof, OBLIGATIONS) is None
    evidence = evidence_of(proof)
    assert (evidence.results, evidence.gradients, evidence.breaks) == ("same", "rounding", (1, 0))


def test_a_number_that_is_printed_may_differ_as_unchanged_runs_do() -> None:
    printed = replace(PROVED, recorded=replace(RECORDED_RUN, printed="loss 1.001\n"))
    baseline = replace(BASELINE, printed="loss 1.0\n")
    assert first_objection(replace(printed, baseline=baseline), RECORDED) is not None
    spread = replace(printed, baseline=replace(baseline, spread=1e-3))
    assert first_objection(spread, RECORDED) is None
    assert evidence_of(spread).output == "rounding"


def test_one_side_of_a_condition_is_not_enough() -> None:
    text = first_objection(REJECTED["_sides_were_seen"], OBLIGATIONS)
    assert text == "only the true side of the condition was seen, with 9 inputs tried"
