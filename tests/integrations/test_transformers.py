"""The callback in a real training loop of transformers."""

from __future__ import annotations

import gc
import importlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import dynadiag


@pytest.fixture
def loop() -> Any:
    pytest.importorskip("accelerate")  # the Trainer needs it
    return importlib.import_module("tests.integrations.transformers_training")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_some_steps_are_recorded_and_told(loop: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tracker, path = loop.Tracker(), tmp_path / "run.dynadiag"
    with caplog.at_level(logging.INFO, "dynadiag"):
        made = loop.trainer(tmp_path, tracker, loop.DynadiagCallback(path, first_step=1, last_step=2))
        made.train()
    with dynadiag.open(path) as recording:
        assert [item.gb_id for item in recording.breaks] == ["GB0124"]
    (told,) = [logs for logs in tracker.logs if "dynadiag/graph_breaks" in logs]
    assert (told["dynadiag/graph_breaks"], told["dynadiag/recompiles"]) == (1, 0)
    assert sum("loss" in logs for logs in tracker.logs) == 4  # no step's own log is lost
    assert [item["step"] for item in made.state.log_history if "dynadiag/graphs" in item] == [2]
    assert made.state.global_step == 4
    assert "break[GB0124]" in caplog.text
    assert f"dynadiag explain {path}" in caplog.text


def test_training_stops_when_a_budget_is_exceeded(loop: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = loop.trainer(tmp_path, loop.DynadiagCallback(tmp_path / "run.dynadiag", last_step=2, max_breaks=0))
    made.train()
    assert made.state.global_step == 2
    assert "over budget: 1 graph break, 0 allowed" in caplog.text
    assert "training stops here" in caplog.text


def test_it_only_says_so_without_stop(loop: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    callback = loop.DynadiagCallback(tmp_path / "run.dynadiag", last_step=1, max_breaks=0, stop=False)
    made = loop.trainer(tmp_path, callback, steps=2)
    made.train()
    assert made.state.global_step == 2
    assert "over budget" in caplog.text
    assert "training stops" not in caplog.text


def test_a_loop_that_ends_early_or_raises_leaves_a_recording(loop: Any, tmp_path: Path) -> None:
    loop.trainer(tmp_path, loop.DynadiagCallback(tmp_path / "early.dynadiag"), steps=1).train()
    with dynadiag.open(tmp_path / "early.dynadiag") as recording:
        assert len(recording.compiles()) > 0
    torch._dynamo.reset()
    with pytest.raises(KeyError, match="mine"):
        loop.trainer(tmp_path, loop.Raises(), loop.DynadiagCallback(tmp_path / "raised.dynadiag")).train()
    gc.collect()
    with dynadiag.open(tmp_path / "raised.dynadiag") as recording:
        assert len(recording.compiles()) > 0
    with dynadiag.record(tmp_path / "next.dynadiag"):  # the raised loop's recording has ended
        pass


def test_what_cannot_be_recorded_is_refused_before_training(loop: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.dynadiag"
    path.write_text("mine")
    with pytest.raises(dynadiag.DynadiagError, match="force"):
        loop.trainer(tmp_path, loop.DynadiagCallback(path)).train()
    assert path.read_text() == "mine"
    with pytest.raises(dynadiag.DynadiagError, match="max_braeks"):
        loop.DynadiagCallback(path, max_braeks=1)
    with pytest.raises(dynadiag.DynadiagError, match="steps 3 to 2"):
        loop.DynadiagCallback(path, first_step=3, last_step=2)


@pytest.mark.parametrize("steps", [2, 30])  # an epoch has ten steps
def test_trackers_are_told_before_they_are_closed(loop: Any, tmp_path: Path, steps: int) -> None:
    tracker = loop.Tracker()
    callback = loop.DynadiagCallback(tmp_path / "run.dynadiag", last_step=100)
    loop.trainer(tmp_path, tracker, loop.StopsAtEpoch(), callback, steps=steps).train()
    assert sum("dynadiag/graphs" in logs for logs in tracker.logs) == 1


def test_a_tracker_that_fails_does_not_end_training(
    loop: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = loop.trainer(tmp_path, loop.BrokenTracker(), loop.DynadiagCallback(tmp_path / "run.dynadiag", last_step=1))
    made.train()
    assert made.state.global_step == 4
    assert "dynadiag: a tracker did not take the figures of dynadiag: OSError: unreachable\n" in capsys.readouterr().err


def test_trainings_in_a_row_are_what_they_are_without_it(loop: Any, tmp_path: Path) -> None:
    made = loop.trainer(tmp_path, loop.DynadiagCallback(tmp_path / "run.dynadiag", last_step=2))
    made.train()
    made.train()
    assert made.state.global_step == 4
