"""Programs that fail because the machine lacks what a compile needs."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dynadiag.bisection.budget import SearchBudget
from dynadiag.bisection.failing_rung import BisectOptions, FailingRung
from dynadiag.bisection.machine import MachineFault, machine_fault
from dynadiag.bisection.verdict import Verdict
from dynadiag.minify.minify_result import result_text
from dynadiag.minify.minimizer import MinifyRequest, _Minimizer
from dynadiag.render.printer import Printer
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import Plan
from dynadiag.trial.signature import Signature
from dynadiag.trial.supervise import Limits
from tests.bisection.conftest import Bisected

PROGRAM = "import torch\n\ntorch.compile(lambda x: torch.sin(x) + 1)(torch.ones(8))\n"
NO_COMPILER = "/nowhere/g++"


def test_no_operator_is_blamed_where_there_is_no_compiler(bisected: Bisected, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", NO_COMPILER)
    verdict = bisected(PROGRAM)
    assert (verdict.verdict, verdict.rung, verdict.culprits) == ("found", "inductor", ())
    assert verdict.notes[0] == "a compiled `x + 1` alone fails in the same way"
    assert verdict.notes[1].startswith("Install a C++ compiler")
    first = str(verdict).splitlines()[0]
    assert first == "found: fails first at rung inductor; at fault: this machine, where no code compiles"
    last = str(verdict).splitlines()[-3]
    assert last == f"  python -c {shlex.quote(verdict.shows_machine_fault)}"


def _fault(folder: Path, error: str, alone: Outcome) -> tuple[MachineFault | None, list[str]]:
    """What is said of a program that raises this error, where other code ends so alone; and which trials it costs."""
    trials: list[str] = []

    def run_other(_: object, plan: object, label: str) -> Outcome:
        trials.append(label)
        return alone

    runner = SimpleNamespace(scratch=folder, limits=Limits.default(1.0))
    search = cast(Any, SimpleNamespace(runner=runner, run_other=run_other))
    return machine_fault(search, Plan(), _failed(error)), trials


def _failed(error: str) -> Outcome:
    return Outcome(Signature("exception", "InductorError", f"{error}: of it", cause=error, rung="inductor"), 1.0)


def test_an_error_that_other_code_does_not_raise_is_of_the_program(tmp_path: Path) -> None:
    assert _fault(tmp_path, "PermissionError", Outcome()) == (None, ["a compiled x + 1 alone"])
    assert _fault(tmp_path, "PermissionError", _failed("KeyError"))[0] is None
    assert _fault(tmp_path, "PermissionError", _failed("PermissionError"))[0] is not None


def test_an_error_of_a_lowering_costs_no_trial(tmp_path: Path) -> None:
    assert _fault(tmp_path, "KeyError", _failed("KeyError")) == (None, [])


def test_minify_does_not_reduce_it() -> None:
    verdict = Verdict("found", {"inductor": "same"}, "inductor", notes=("why",), shows_machine_fault="import torch")
    search = cast(Any, SimpleNamespace(reference=None, budget=SearchBudget()))
    located = FailingRung(Outcome(), verdict=verdict)
    result = _Minimizer(search, MinifyRequest(BisectOptions(), Path("repro.py")))._after_ladder(located)
    assert (result.exit_code, result.notes, result.text) == (6, ("why",), "")
    assert "no code compiles" in result_text(result, Printer())
