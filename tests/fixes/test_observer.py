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
