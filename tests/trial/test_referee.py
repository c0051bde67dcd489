from __future__ import annotations

import pytest
import torch

from dynadiag.trial.arms import Call, run_arm
from dynadiag.trial.referee import Difference, differences


def _judged(function: object, wrong: object, *args: torch.Tensor) -> list[Difference]:
    call = Call(function, args, {})  # type: ignore[arg-type]  # any callable
    expected, actual = (run_arm(call, one, call.copies()) for one in (function, wrong))  # type: ignore[arg-type]
    return differences(call, expected, actual, None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_inputs_of_one_storage_share_it_in_float64_too(dtype: torch.dtype) -> None:
    """What is written to one of them is seen through the other: else float64 takes the right result for as wrong."""

    def function(base: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        base.add_(100)
        return rows[0].clone()

    def wrong(base: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return function(base, rows) - 10

    base = torch.arange(24).reshape(4, 6).to(dtype)
    found = _judged(function, wrong, base, base[1:])
    assert [difference.rounding for difference in found] == [False]


def test_an_input_nudged_within_its_precision_is_no_proof() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x * 1e6)

    def otherwise(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x * 1e3 * 1e3)

    found = _judged(function, otherwise, torch.linspace(0.1, 1.0, 64))
    assert found
    assert all(difference.rounding for difference in found)
