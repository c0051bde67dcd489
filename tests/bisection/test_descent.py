"""The descent with a simulated compiler: which decisions it takes, and which of them fail together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from dynadiag.bisection.descent import DescentResult, descend
from dynadiag.bisection.trial_log import TrialLog
from dynadiag.bisection.trial_search import TrialSearch
from dynadiag.trial.outcome import Decision, Outcome
from dynadiag.trial.plan import INTERMEDIATES, Plan
from dynadiag.trial.signature import Signature
from dynadiag.trial.supervise import Limits

GRAPHS = (("0/0", "forward"), ("0/0", "backward"), ("1/0", "forward"), ("1/0", "backward"))
OPERATORS = ("sin", "mul", "erf", "erf_1", "add", "exp", "neg", "relu")


def _point(group: str, compile_id: str, graph: str, name: str) -> Decision:
    target = f"aten.{name.split('_')[0]}.default"
    return Decision(group, f"{compile_id}/{graph}/{name}", name, compile_id, graph, target)


def _points() -> list[Decision]:
    inner = [Decision("graph", f"{c}/{g}/0", f"{c} {g}", c, g) for c, g in GRAPHS]
    lowerings = [_point("lowering", c, g, name) for c, g in GRAPHS for name in OPERATORS]
    return [*inner, *lowerings, _point("pass", "1/0", "joint", "fold")]


@dataclass
class Compiler:
    """Stands in for the runner. A fault is a set of keys, and a trial fails where all keys of a fault are on."""

    faults: Sequence[frozenset[str]]
    kind: str = "exception"
    other: frozenset[str] = frozenset()  # keys that fail in another way, while no fault is on
    below: Signature | None = None  # the failure of the rung below, and of each trial without a fault
    diverged: tuple[str, ...] = ()  # keys of nodes where values diverge, if only by rounding
    points: list[Decision] = field(default_factory=_points)
    plans: list[Plan] = field(default_factory=list)
    limits: Limits = field(default_factory=lambda: Limits.default(600.0))
    runs_in_parallel: ClassVar[bool] = False  # whether trials run in parallel

    def run_many(self, plans: Sequence[Plan]) -> list[Outcome]:
        assert self.runs_in_parallel
        return [self.run(plan) for plan in plans]

    def run(self, plan: Plan) -> Outcome:
        self.plans.append(plan)
        on = {p.key for p in self.points} - {p.key for p in self.points if not self._on(plan, p)}
        told = tuple(p for p in self.points if p.group in plan.record)
        if plan.rung != "inductor":
            return Outcome(self.below, 0.1)
        if any(fault <= on for fault in self.faults):
            diverged = self.diverged if INTERMEDIATES in plan.record else ()
            return Outcome(Signature(self.kind, "AssertionError", "not close"), 0.1, points=told, diverged=diverged)
        if self.other & on:
            return Outcome(Signature("exception", "KeyError", "another thing"), 0.1, points=told)
        return Outcome(self.below, 0.1, points=told)

    def _on(self, plan: Plan, point: Decision) -> bool:
        graphs = plan.switch("graph")
        inner = next(
            (p for p in self.points if p.group == "graph" and p.key.startswith(f"{point.compile_id}/{point.graph}/")),
            None,
        )
        if point.group == "lowering" and inner is not None and graphs is not None and not graphs.is_on(inner.key):
            return False
        switch = plan.switch(point.group)
        return switch is None or switch.is_on(point.key)


@pytest.fixture(autouse=True, params=[False, True], ids=["in turn", "side by side"])
def _side_by_side(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Compiler, "runs_in_parallel", request.param)


def _descend(tmp_path: Path, compiler: Compiler, **changes: Any) -> DescentResult:
    search = TrialSearch(compiler, TrialLog(tmp_path / "s.dynadiag", "program.py", []), **changes)  # type: ignore[arg-type]  # a stand-in
    plan = Plan(rung="inductor", record=("graph", "lowering", "pass"), caches=False)
    seen = search.run(plan, "inductor")
    search.reference = seen.signature
    return descend(search, Plan(rung="inductor", caches=False), "inductor", seen)


def _named(finding: DescentResult) -> set[tuple[str, str, str | None, str | None]]:
    return {(c.group, c.name, c.compile_id, c.graph) for c in finding.culprits}


@pytest.mark.parametrize(("compile_id", "graph"), GRAPHS)
def test_a_fault_of_one_graph_is_searched_for_in_that_graph(tmp_path: Path, compile_id: str, graph: str) -> None:
    compiler = Compiler([frozenset({f"{compile_id}/{graph}/exp"})])
    finding = _descend(tmp_path, compiler)
    assert _named(finding) == {("lowering", "exp", compile_id, graph)}
    within = [p for p in compiler.plans if p.switch("graph") and p.switch("lowering") and p.switch("lowering").suffixes]  # type: ignore[union-attr]
    assert within, "the lowerings were searched with the other graphs uncompiled"
    assert not any(switch.group == "graph" for plan in finding.plans for switch in plan.switches)


def test_a_fault_of_one_operator_is_found_in_every_graph(tmp_path: Path) -> None:
    wrong = [frozenset({f"{c}/{g}/{name}"}) for c, g in GRAPHS[:3] for name in ("erf", "erf_1")]
    finding = _descend(tmp_path, Compiler(wrong))
    assert {c.name for c in finding.culprits} <= {"erf", "erf_1"}
    assert sum(len(c.nodes or (c.name,)) for c in finding.culprits) == len(wrong)


def test_decisions_of_two_graphs_that_fail_only_together(tmp_path: Path) -> None:
    fault = frozenset({"0/0/forward/sin", "1/0/backward/neg"})
    assert _named(_descend(tmp_path, Compiler([fault]))) == {
        ("lowering", "sin", "0/0", "forward"),
        ("lowering", "neg", "1/0", "backward"),
    }


@pytest.mark.parametrize(
    ("dtype", "said"), [("torch.uint8", ": it is never rounded to its type, torch.uint8"), ("torch.float32", "")]
)
def test_lowerings_that_fail_only_together_are_one_value_that_is_not_stored(
    tmp_path: Path, dtype: str, said: str
) -> None:
    inlined = Decision("inline", "0/0/forward/neg", "neg+relu", "0/0", "forward", dtype)
    chain = frozenset(f"0/0/forward/{name}" for name in ("exp", "neg", "relu"))
    finding = _descend(tmp_path, Compiler([chain], points=[*_points(), inlined]))
    assert _named(finding) == {("fusion", "neg+relu", "0/0", "forward")}
    assert finding.notes[0].startswith("the lowerings exp, neg, relu fail only together")
    assert finding.notes[1].endswith(f"inside relu, not stored{said}")


def test_a_pass_before_the_split_is_found_with_every_graph_uncompiled(tmp_path: Path) -> None:
    finding = _descend(tmp_path, Compiler([frozenset({"1/0/joint/fold"})]))
    assert _named(finding) == {("pass", "fold", "1/0", "joint")}


def test_another_failure_behind_the_reference_does_not_hide_its_culprit(tmp_path: Path) -> None:
    compiler = Compiler([frozenset({"0/0/forward/exp"})], other=frozenset({"1/0/forward/relu"}))
    finding = _descend(tmp_path, compiler)
    assert _named(finding) == {("lowering", "exp", "0/0", "forward")}
    assert "another failure shows: KeyError" in finding.confirmed[0]


def test_divergence_by_rounding_does_not_mislead_the_search(tmp_path: Path) -> None:
    """A wrong pass comes before the graph that values are compared with. Nodes that only round in it are not at
    fault.
    """
    compiler = Compiler([frozenset({"1/0/joint/fold"})], diverged=("1/0/forward/exp", "1/0/forward/neg"))
    assert _named(_descend(tmp_path, compiler)) == {("pass", "fold", "1/0", "joint")}
    assert len(compiler.plans) <= 16


def test_a_different_failure_counts_as_gone_if_the_rung_below_fails_too(tmp_path: Path) -> None:
    compiler = Compiler(
        [frozenset({"1/0/forward/exp"})], below=Signature("exception", "KeyError", "no", cause="KeyError")
    )
    assert _named(_descend(tmp_path, compiler)) == {("lowering", "exp", "1/0", "forward")}
