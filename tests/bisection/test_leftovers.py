"""State that torch's own bisector left in the cache folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dynadiag.bisection.failing_rung import Bisection, BisectOptions, _fails_at_no_rung
from dynadiag.bisection.ladder import LadderResult
from dynadiag.trial.events import RunFacts
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import Plan
from dynadiag.trial.signature import Signature
from tests.bisection.conftest import Bisected
from tests.bisection.test_bisector import BACKEND
from tests.interpreters import warm

PLAIN = """
import torch
f = lambda x: torch.relu(x) * 2
x = torch.linspace(-1, 1, 8)
torch.testing.assert_close(torch.compile(f)(x), f(x))
"""
PLANTED = """
import torch._inductor.lowering as L
L.lowerings[torch.ops.aten.relu.default] = L.lowerings[torch.ops.aten.abs.default]
x = torch"""


def test_a_status_file_that_was_left_has_no_effect(
    bisected: Bisected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It makes torch run every compile with backend eager, which would hide the fault."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    status = tmp_path / "cache" / "bisect" / "bisect_status.txt"
    status.parent.mkdir(parents=True)
    status.write_text("backend=eager\nsubsystem=\n")
    verdict = bisected(BACKEND)
    assert (verdict.verdict, verdict.rung) == ("found", "custom")
    assert [culprit.name for culprit in verdict.culprits] == ["double"]
    assert status.read_text() == "backend=eager\nsubsystem=\n"


@pytest.mark.slow
def test_a_failure_from_stale_caches_gets_a_note(
    bisected: Bisected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cache keys do not cover a lowering that an earlier program replaced."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    planted = tmp_path / "planted.py"
    planted.write_text(PLAIN.replace("\nx = torch", PLANTED, 1))
    with warm():  # torch's settings are part of the keys: those of the trials
        subprocess.run([sys.executable, str(planted)], check=False, capture_output=True, timeout=300)
    verdict = bisected(PLAIN)
    assert (verdict.verdict, verdict.rungs["inductor"]) == ("flaky", "pass")
    assert str(verdict).startswith("it fails only with what earlier runs left in the compiler's caches\n")
    assert any("--fresh" in note for note in verdict.notes)


MISTAKEN = """
import torch
from torch._functorch._aot_autograd import autograd_cache
autograd_cache.autograd_cache_key = lambda *args, **kwargs: ("one key for all", [])

def first(x):
    return x.sin()

def second(x):
    return x.cos()

x = torch.ones(4)
compiled = [torch.compile(f)(x) for f in (first, second)]
torch.testing.assert_close(compiled, [x.sin(), x.cos()])
"""


@pytest.mark.slow
def test_graphs_that_share_a_cache_entry_by_mistake_are_named(
    bisected: Bisected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache := tmp_path / "cache"))
    monkeypatch.setenv("TORCHINDUCTOR_AUTOGRAD_CACHE", "1")
    verdict = bisected(MISTAKEN)
    assert (verdict.verdict, verdict.rung, verdict.rungs["inductor"]) == ("found", "inductor", "same")
    assert {(culprit.group, culprit.compile_id) for culprit in verdict.culprits} == {("graph", "0/0"), ("graph", "1/0")}
    assert len(verdict.confirmed) == 2
    assert any("TORCHINDUCTOR_AUTOGRAD_CACHE=0" in note for note in verdict.notes)
    assert cache.is_dir(), "the first run has the program's own caches"


@pytest.mark.parametrize(
    ("fails", "says"),
    [
        (lambda plan: plan.caches, "it fails only with what earlier runs left in the compiler's caches"),
        (
            lambda plan: plan.caches and plan.rung is None,  # it passes at the same rung with the caches, too
            "it fails in each run as it is written, and in the same way at no rung",
        ),
    ],
)
def test_caches_are_at_fault_only_where_the_same_trial_fails_with_them(
    fails: Callable[[Plan], bool], says: str
) -> None:
    failure = Outcome(Signature("exception", "RuntimeError", "m"), 1.0, facts=RunFacts(backends=("inductor",)))

    def run(plan: Plan, _: str, **__: object) -> Outcome:
        return failure if fails(plan) and not plan.own_caches else Outcome(None, 1.0)

    def status(outcome: Outcome, **_: object) -> str:
        return "pass" if outcome.passed else "same"

    runner = SimpleNamespace(stop_forks=lambda: None)
    search = cast(Any, SimpleNamespace(runner=runner, run=run, run_fresh=run, status=status))
    found = _fails_at_no_rung(Bisection(search, BisectOptions(), Plan(), []), failure, LadderResult({}, None, None))
    assert str(found.verdict).splitlines()[0] == says
