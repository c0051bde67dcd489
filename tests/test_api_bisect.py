"""dynadiag.bisect from Python: calls in this process, which it does not change."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch._inductor.lowering as inductor

import dynadiag
from dynadiag.bisection.verdict import Verdict

TANH = torch.ops.aten.tanh.default
pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="a process that has compiled anything uses the GPU then, and cannot be forked"
)


@pytest.fixture
def wrong_tanh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Inductor's tanh comes out half as large again, in this process only."""
    right = inductor.lowerings[TANH]
    times = inductor.lowerings[torch.ops.aten.mul.Tensor]
    monkeypatch.setitem(inductor.lowerings, TANH, lambda x: times(right(x), 1.5))
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def closure() -> Callable[[torch.Tensor], torch.Tensor]:
    factor = 3

    def scaled(x: torch.Tensor) -> torch.Tensor:
        y = torch.sin(x) * factor
        return torch.tanh(y) + 1

    return scaled


def test_a_closure_is_bisected_where_it_stands(wrong_tanh: None, capfd: pytest.CaptureFixture[str]) -> None:
    fn, x = closure(), torch.randn(64)
    state, threads, config = torch.get_rng_state(), torch.get_num_threads(), torch._inductor.config.get_config_copy()
    verdict = dynadiag.bisect(fn, (x,))
    assert (verdict.verdict, verdict.rung, verdict.exit_code) == ("found", "inductor", 0)
    (culprit,) = verdict.culprits
    assert (culprit.group, culprit.name) == ("lowering", "tanh")
    assert culprit.lines == ((__file__, fn.__code__.co_firstlineno + 2),)
    assert len(verdict.confirmed) == 2
    assert torch.equal(torch.get_rng_state(), state)
    assert (torch.get_num_threads(), torch._inductor.config.get_config_copy()) == (threads, config)
    assert capfd.readouterr() == ("", "")
    _check_the_forms(verdict)


def _check_the_forms(verdict: Verdict) -> None:
    document = json.loads(verdict.to_json())
    assert document["torch"] == torch.__version__
    assert document["culprits"][0]["name"] == "tanh"
    assert document["failure"]["kind"] == "wrong_result"
    assert "lowering tanh" in str(verdict)
    assert "with one thread" in str(verdict)


@pytest.mark.slow
def test_a_module_that_is_compiled_already_and_wrong_in_both_directions(wrong_tanh: None) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.linear(x).sin()).cos()

    model = torch.compile(Model(), fullgraph=True)
    weight = model.linear.weight.clone()
    verdict = dynadiag.bisect(model, [torch.randn(2, 8, requires_grad=True)])
    assert verdict.verdict == "found"
    assert {culprit.group for culprit in verdict.culprits} == {"lowering"}
    assert {culprit.graph for culprit in verdict.culprits} <= {"forward", "backward"}
    assert torch.equal(model.linear.weight, weight)


def test_rounding_and_a_call_that_passes() -> None:
    verdict = dynadiag.bisect(lambda x, scale: (x * scale).sum(), (torch.randn(1000),), {"scale": 0.1})
    assert (verdict.verdict, verdict.exit_code) == ("passes", 3)


def test_a_crash_ends_the_trial_and_not_this_process() -> None:
    def backend(gm: torch.fx.GraphModule, _inputs: list[torch.Tensor]) -> object:
        import os

        os.abort()

    verdict = dynadiag.bisect(torch.compile(lambda x: x + 1, backend=backend), (torch.ones(3),))
    assert verdict.failure is not None
    assert (verdict.verdict, verdict.rung, verdict.failure.type) == ("found", "custom", "SIGABRT")


@pytest.mark.usefixtures("forked_interpreters")
def test_a_console_has_no_files(tmp_path: Path) -> None:
    """As in a notebook: the function has no file at all, and threads of others are alive."""
    code = (
        "import threading, torch\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "import dynadiag\n"
        "torch.randn(400, 400) @ torch.randn(400, 400)\n"
        "def f(x):\n    return x @ torch.ones(3)\n"
        "print(dynadiag.bisect(f, (torch.zeros(2, 2),), accuracy=False).verdict)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "fails_uncompiled\n"


class SilentError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("error", [ValueError("of ours"), SilentError()])
def test_a_call_that_raises_by_itself_fails_uncompiled_too(error: Exception) -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise error

    verdict = dynadiag.bisect(fails, (torch.ones(2),))
    assert (verdict.verdict, verdict.exit_code) == ("fails_uncompiled", 4)
    assert verdict.failure is not None
    assert (verdict.failure.type.rpartition(".")[2], "of ours" in str(verdict)) == (
        type(error).__name__,
        isinstance(error, ValueError),
    )
