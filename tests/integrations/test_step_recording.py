"""Budgets of recorded steps, without any trainer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dynadiag.integrations.step_recording import StepRecording, StepsResult


def trained(path: Path, **budgets: int) -> list[StepsResult | None]:
    """What each of six steps says, of which the later ones recompile."""
    torch.compiler.reset()
    compiled = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    steps = StepRecording(path, 1, 6, budgets)
    told = []
    for step in range(1, 7):
        steps.before_step(step)
        compiled(torch.ones(max(step, 2)))
        told.append(steps.after_step(step))
    return told


def test_too_many_recompiles_end_the_recording_early(tmp_path: Path) -> None:
    *before, result = trained(tmp_path / "run.dynadiag", max_recompiles=1)[:4]
    assert before == [None, None, None]
    assert result is not None
    assert any("recompiles" in sentence for sentence in result.over)


@pytest.mark.parametrize("budgets", [{}, {"max_recompiles": 9}])
def test_within_budgets_all_steps_are_recorded(tmp_path: Path, budgets: dict[str, int]) -> None:
    *before, result = trained(tmp_path / "run.dynadiag", **budgets)
    assert before == [None] * 5
    assert result is not None
    assert result.over == ()
