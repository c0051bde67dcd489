"""The kernels of one warm call, against those that the call really enters: torch marks each in a profile if asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch._inductor import config

import dynadiag
from dynadiag.compare.call_kernels import CallKernels, kernels_of_a_call
from dynadiag.compare.measure import Measurer
from dynadiag.compare.variant import Variant
from dynadiag.explanation.runtime_cost import WarmCalls


def block(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() + 1).softmax(-1)


def whole(x: torch.Tensor) -> torch.Tensor:
    for _ in range(4):
        x = block(x)
    return x


def between(x: torch.Tensor) -> torch.Tensor:
    """The block is compiled once and runs four times: its kernels stand once in the generated code."""
    for _ in range(4):
        torch._dynamo.graph_break()
        x = block(x)
    return x


def in_python(x: torch.Tensor) -> torch.Tensor:
    """A view and two operators that compute run in Python."""
    y = x.sin() + 1
    return torch.compiler.disable(lambda z: z.view(-1).mul(2).relu())(y).cos()


def left_to_python(x: torch.Tensor) -> torch.Tensor:
    """A break in a loop leaves all of it to Python."""
    for _ in range(2):
        x = x.sin() + 1
        print(end="")  # noqa: T201
    return x


def trained(x: torch.Tensor) -> Any:
    return torch.autograd.grad(torch.compile(block)(x)[0].sum(), x)


def branching(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda y: y.sin() + 1, lambda y: (y * 2).softmax(-1), (x,))


def counted(tmp_path: Path, function: Any, x: torch.Tensor, **options: Any) -> tuple[CallKernels | None, int]:
    """What is counted of a call, and the kernels of Inductor that a profile of one shows."""
    torch._dynamo.reset()
    subject = Measurer((function, (x,), {}), Variant(**{"name": "make", "mode": "default", **options}))
    file = tmp_path / f"{options.get('mode', 'default')}.dynadiag"
    with config.patch({"cpp.enable_kernel_profile": True}), dynadiag.record(file):
        subject.first()
    subject.profile(0.0)
    warm = msgspec.convert(subject.warm()["warm"], WarmCalls)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        subject._step()
    entered = [each.name for each in profile.events() if "_fused_" in each.name]
    with dynadiag.open(file) as recording:
        return kernels_of_a_call(recording, warm, options.get("step", "call")), len(entered)


@pytest.mark.parametrize(
    ("function", "least", "uncompiled"), [(whole, 1, 0), (between, 4, 0), (in_python, 2, 2), (left_to_python, 0, 4)]
)
def test_the_kernels_of_a_call_are_those_that_it_enters(
    tmp_path: Path, function: Any, least: int, uncompiled: int
) -> None:
    found, entered = counted(tmp_path, function, torch.randn(64, 64), step="inference")
    assert found is not None
    assert (found.generated, found.extern, found.uncompiled) == (entered, 0, uncompiled)
    assert entered >= least


def test_the_compiled_backward_counts_where_the_step_runs_it(tmp_path: Path) -> None:
    x = torch.randn(64, 64, requires_grad=True)
    trained_step, entered = counted(tmp_path, block, x, step="train")
    assert trained_step is not None
    assert trained_step.generated == entered
    within, entered_within = counted(tmp_path, trained, x, mode="eager")
    assert within is not None
    assert within.generated == entered_within > 1


def test_what_a_branch_runs_is_not_known(tmp_path: Path) -> None:
    assert counted(tmp_path, branching, torch.randn(8, 8), step="inference")[0] is None


def test_without_a_profile_it_is_known_of_one_piece_of_code(tmp_path: Path) -> None:
    counts = []
    for function in (whole, between):
        torch._dynamo.reset()
        with dynadiag.record(tmp_path / f"{function.__name__}.dynadiag") as file:
            torch.compile(function)(torch.randn(64, 64))
        with dynadiag.open(file) as recording:
            counts.append(kernels_of_a_call(recording, None, None))
    assert counts[0] is not None
    assert counts[1] is None
