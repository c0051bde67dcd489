"""The ladder with a simulated program: which rungs are tried, and what their statuses say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dynadiag.bisection.ladder import LadderResult, run_ladder, rungs_to_try
from dynadiag.bisection.trial_log import TrialLog
from dynadiag.bisection.trial_search import TrialSearch
from dynadiag.trial.events import RunFacts
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import Plan
from dynadiag.trial.signature import Signature
from dynadiag.trial.supervise import Limits

FAILURE = Signature("exception", "RuntimeError", "it fails", "/p.py:1 in f")


@dataclass
class Program:
    """Stands in for the runner: a program that fails at some rungs. On the triton rung, one kernel runs."""

    failing: Sequence[str]
    tried: list[str | None] = field(default_factory=list)
    limits: Limits = field(default_factory=lambda: Limits.default(600.0))

    def run(self, plan: Plan) -> Outcome:
        self.tried.append(plan.rung)
        return Outcome(FAILURE if plan.rung in self.failing else None, 0.1, facts=RunFacts(launches=("k",)))


def ladder_of(program: Program, wanted: Sequence[str] | None, folder: Path) -> LadderResult:
    search = TrialSearch(program, TrialLog(folder / "log", "p.py", ["p.py"]), reference=FAILURE)  # type: ignore[arg-type]  # a stand-in
    return run_ladder(search, Plan(), rungs_to_try("inductor", wanted))


def test_the_first_rung_that_fails_ends_the_ladder(tmp_path: Path) -> None:
    program = Program(("aot_eager", "inductor"))
    found = ladder_of(program, None, tmp_path)
    assert (found.first, program.tried) == ("aot_eager", ["uncompiled", "eager", "aot_eager"])
    assert [found.rungs[rung] for rung in ("eager", "aot_eager", "inductor")] == ["pass", "same", "not_run"]


@pytest.mark.parametrize(("failing", "status"), [(("inductor",), "pass"), (("inductor", "triton"), "same")])
def test_triton_is_tried_too_where_inductor_fails(failing: tuple[str, ...], status: str, tmp_path: Path) -> None:
    found = ladder_of(Program(failing), ("eager", "inductor", "triton"), tmp_path)
    assert (found.first, found.rungs["inductor"], found.rungs["triton"]) == ("inductor", "same", status)


def test_triton_is_not_tried_where_a_lower_rung_fails(tmp_path: Path) -> None:
    program = Program(("eager",))
    assert ladder_of(program, ("eager", "inductor", "triton"), tmp_path).rungs["triton"] == "not_run"
    assert program.tried == ["eager"]
