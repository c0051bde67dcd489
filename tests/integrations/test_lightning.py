"""The callback in a real training loop of Lightning, where that is installed."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import dynadiag

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice about workers, its uses of what torch deprecates


@pytest.fixture
def loop() -> Any:
    pytest.importorskip("lightning")
    return importlib.import_module("tests.integrations.lightning_training")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_some_batches_are_recorded_and_told(loop: Any, tmp_path: Path) -> None:
    tracker, path = loop.Tracker(), tmp_path / "run.dynadiag"
    made = loop.train(tmp_path, loop.DynadiagCallback(path, first_step=1, last_step=2), tracker)
    with dynadiag.open(path) as recording:
        assert [item.gb_id for item in recording.breaks] == ["GB0124"]
    (told,) = [metrics for metrics, _ in tracker.metrics if "dynadiag/graph_breaks" in metrics]
    assert told["dynadiag/graph_breaks"] == 1
    assert made.global_step == 4


def test_training_stops_at_the_step_that_recompiles_once_too_often(loop: Any, tmp_path: Path) -> None:
    callback = loop.DynadiagCallback(tmp_path / "run.dynadiag", last_step=100, max_recompiles=1)
    made = loop.train(tmp_path, callback, loop.Tracker(), (2, 2, 3, 4, 5, 6))
    assert made.global_step < 6


def test_a_loop_that_raises_leaves_a_recording(loop: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.dynadiag"
    with pytest.raises(RuntimeError, match="same reduction dim"):
        loop.train(tmp_path, loop.DynadiagCallback(path), loop.Tracker(), wrong=torch.ones(2, 5))
    with dynadiag.open(path) as recording:
        assert "RuntimeError" in str(recording.report())


def test_a_tracker_that_fails_does_not_end_training(
    loop: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    callback = loop.DynadiagCallback(tmp_path / "run.dynadiag", last_step=1)
    assert loop.train(tmp_path, callback, loop.BrokenTracker()).global_step == 4
    assert "a tracker did not take the figures of dynadiag: OSError: unreachable" in capsys.readouterr().err
