from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch._higher_order_ops.while_loop import while_loop

from dynadiag.trial.float64 import float64_copies, float64_operators, run_in_float64
from dynadiag.trial.reference_run import ReplayableCall

DRAWN = {
    "rand": lambda x: torch.rand(16) + x,
    "randn in bfloat16": lambda x: torch.randn(16, dtype=torch.bfloat16) + x,
    "rand_like": lambda x: torch.rand_like(x) + x,
    "bernoulli": lambda x: torch.bernoulli(torch.full((16,), 0.3)) + x,
    "uniform_": lambda x: torch.empty(16).uniform_() + x,
    "a part of a tensor": lambda x: torch.cat([x, x]).mul_(1)[4:20].normal_(),
    "normal": lambda x: torch.normal(x, x + 1),
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.5),
    "whole numbers": lambda x: torch.randint(9, (16,)) + x,
}


def _true(function: Callable[..., torch.Tensor], *args: torch.Tensor) -> torch.Tensor:
    arm, _ = run_in_float64(ReplayableCall(function, args, {}))
    assert arm.error is None, arm.error
    return arm.outputs[0]


@pytest.mark.parametrize("name", DRAWN)
def test_random_numbers_are_those_of_the_program(name: str) -> None:
    x = torch.linspace(0, 1, 16)
    torch.manual_seed(3)
    true = _true(DRAWN[name], x)
    torch.manual_seed(3)
    torch.testing.assert_close(true, DRAWN[name](x).double(), rtol=1e-6, atol=1e-6)


def test_branches_of_a_conditional_run_in_float64() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.half().sin(), lambda x: x.half().cos(), (x,))

    x = torch.linspace(0.1, 1, 16)
    torch.testing.assert_close(_true(function, x), x.double().sin(), rtol=1e-12, atol=0)


def test_the_body_of_a_loop_runs_in_float64() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return while_loop(lambda x: x.sum() < 100, lambda x: ((x * 1.1).half().float(),), (x,))[0]

    x = torch.linspace(0.1, 1, 16)
    true = _true(function, x)
    power = torch.log(true / x.double()) / torch.log(torch.tensor(1.1, dtype=torch.float64))
    torch.testing.assert_close(power, power.round(), rtol=1e-9, atol=0)


def test_casts_and_constants_do_not_round() -> None:
    x = torch.linspace(0.1, 1, 16)
    true = _true(lambda x: x.half() * torch.full((16,), 0.1), x)
    torch.testing.assert_close(true, x.double() * 0.1, rtol=1e-15, atol=0)


def test_copies_made_while_operators_run_in_float64_are_right() -> None:
    given = [torch.randn(8).bfloat16() for _ in range(64)]
    expected = [each.double() for each in given]
    with float64_operators(torch.float32):
        copies = float64_copies(given)
    assert all(map(torch.equal, copies, expected))
