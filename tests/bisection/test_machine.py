"""Programs that fail because of the machine that they run on."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dynadiag.bisection.budget import SearchBudget
from dynadiag.bisection.failing_rung import BisectOptions, FailingRung
from dynadiag.bisection.verdict import Verdict
from dynadiag.minify.minify_result import result_text
from dynadiag.minify.minimizer import MinifyRequest, _Minimizer
from dynadiag.render.printer import Printer
from dynadiag.trial.outcome import Outcome
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


def test_a_compiler_that_the_program_names_is_of_the_program(bisected: Bisected) -> None:
    setting = f"import torch._inductor.config\n\ntorch._inductor.config.cpp.cxx = (None, {NO_COMPILER!r})\n"
    verdict = bisected(setting + PROGRAM)
    assert verdict.verdict == "found"
    assert (not verdict.culprits, verdict.shows_machine_fault) == (False, "")


def test_minify_does_not_reduce_it() -> None:
    verdict = Verdict("found", {"inductor": "same"}, "inductor", notes=("why",), shows_machine_fault="import torch")
    search = cast(Any, SimpleNamespace(reference=None, budget=SearchBudget()))
    located = FailingRung(Outcome(), verdict=verdict)
    result = _Minimizer(search, MinifyRequest(BisectOptions(), Path("repro.py")))._after_ladder(located)
    assert (result.exit_code, result.notes, result.text) == (6, ("why",), "")
    assert "no code compiles" in result_text(result, Printer())
