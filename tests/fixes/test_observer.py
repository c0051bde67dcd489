"""The watches of a trial, both in this process: what a changed program's call is compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from dynadiag.fixes.observation import CallDiffers, Observation
from dynadiag.fixes.observer import _Candidate, _Reference
from dynadiag.trial.context import TRIAL


class Scaled(torch.nn.Module):
    def __init__(self, drift: float) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor([2.0, 3.0]) + drift)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


@pytest.fixture
def differences(monkeypatch: pytest.MonkeyPatch) -> list[CallDiffers]:
    """What both watches report."""
    found: list[CallDiffers] = []
    monkeypatch.setattr(TRIAL, "send", lambda event: found.append(event) if isinstance(event, CallDiffers) else None)
    return found


def test_a_call_starts_from_the_values_of_the_unchanged_program(tmp_path: Path, differences: list[Any]) -> None:
    asked = Observation(records=str(tmp_path / "records"), uncompiled=True)
    reference, unchanged, changed = _Reference(asked), Scaled(0.0), Scaled(1e-3)
    reference(unchanged.forward, unchanged.forward, (torch.ones(2),), {})
    reference.finish()
    watch = _Candidate(asked)
    result = watch(changed.forward, changed.forward, (torch.full((2,), 1.001),), {})
    assert differences == []
    assert torch.equal(result, changed.scale * 1.001)  # the program goes on with its own values


class Total(torch.nn.Module):
    def __init__(self, step: float) -> None:
        super().__init__()
        self.step = step
        self.register_buffer("total", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total += x.detach() * self.step
        return self.total


@pytest.mark.parametrize(("step", "found"), [(1.0, set()), (1.5, {"results", "mutations"})])
def test_a_result_that_is_state_is_compared_as_it_was_returned(
    tmp_path: Path, differences: list[Any], step: float, found: set[str]
) -> None:
    asked = Observation(records=str(tmp_path / "records"), uncompiled=True)
    reference, unchanged, changed = _Reference(asked), Total(1.0), Total(step)
    for _ in range(2):
        reference(unchanged.forward, unchanged.forward, (torch.ones(2),), {})
    reference.finish()
    watch = _Candidate(asked)
    watch(changed.forward, changed.forward, (torch.ones(2),), {})
    watch(changed.forward, changed.forward, (torch.ones(2),), {})
    assert {each.what for each in differences} == found
