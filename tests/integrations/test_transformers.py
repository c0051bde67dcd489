"""The callback in a real training loop of transformers."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import dynadiag

pytest.importorskip("accelerate")  # the Trainer needs it
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainerCallback, TrainingArguments

from dynadiag.integrations.transformers import DynadiagCallback


class Tracker(TrainerCallback):
    """Stands for a tracker, which is told in `on_log`."""

    def __init__(self) -> None:
        self.logs: list[dict[str, Any]] = []

    def on_log(self, _args: Any, _state: Any, _control: Any, logs: dict[str, Any], **_: Any) -> None:
        self.logs.append(dict(logs))


class Model(PreTrainedModel):
    config_class = PretrainedConfig
    main_input_name = "x"

    def __init__(self) -> None:
        super().__init__(PretrainedConfig())
        self.layer = torch.nn.Linear(4, 1)
        self.post_init()

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        if x.isnan().any().item():
            x = x.nan_to_num()
        return {"loss": self.layer(x).square().mean()}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def trainer(folder: Path, *callbacks: TrainerCallback, steps: int = 4) -> Trainer:
    arguments = TrainingArguments(
        output_dir=str(folder / "out"),
        max_steps=steps,
        per_device_train_batch_size=2,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        save_strategy="no",
        torch_compile=True,
        torch_compile_backend="eager",
    )
    data = [{"x": torch.ones(4)} for _ in range(20)]
    return Trainer(Model(), arguments, train_dataset=data, callbacks=list(callbacks))


def test_some_steps_are_recorded_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tracker, path = Tracker(), tmp_path / "run.dynadiag"
    with caplog.at_level(logging.INFO, "dynadiag"):
        made = trainer(tmp_path, tracker, DynadiagCallback(path, first_step=1, last_step=2))
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


def test_training_stops_when_a_budget_is_exceeded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = trainer(tmp_path, DynadiagCallback(tmp_path / "run.dynadiag", last_step=2, max_breaks=0))
    made.train()
    assert made.state.global_step == 2
    assert "over budget: 1 graph break, 0 allowed" in caplog.text


def test_it_only_says_so_without_stop(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    callback = DynadiagCallback(tmp_path / "run.dynadiag", last_step=1, max_breaks=0, stop=False)
    made = trainer(tmp_path, callback, steps=2)
    made.train()
    assert made.state.global_step == 2
    assert "over budget" in caplog.text


def test_a_loop_that_ends_early_or_raises_leaves_a_recording(tmp_path: Path) -> None:
    class Raises(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            raise KeyError("mine")

    trainer(tmp_path, DynadiagCallback(tmp_path / "early.dynadiag"), steps=1).train()
    with dynadiag.open(tmp_path / "early.dynadiag") as recording:
        assert len(recording.compiles()) > 0
    torch._dynamo.reset()
    with pytest.raises(KeyError, match="mine"):
        trainer(tmp_path, Raises(), DynadiagCallback(tmp_path / "raised.dynadiag")).train()
    gc.collect()
    with dynadiag.open(tmp_path / "raised.dynadiag") as recording:
        assert len(recording.compiles()) > 0
    with dynadiag.record(tmp_path / "next.dynadiag"):  # the raised loop's recording has ended
        pass


def test_what_cannot_be_recorded_is_refused_before_training(tmp_path: Path) -> None:
    path = tmp_path / "run.dynadiag"
    path.write_text("mine")
    with pytest.raises(dynadiag.DynadiagError, match="force"):
        trainer(tmp_path, DynadiagCallback(path)).train()
    assert path.read_text() == "mine"
    with pytest.raises(dynadiag.DynadiagError, match="max-braeks"):
        DynadiagCallback(path, max_braeks=1)
    with pytest.raises(dynadiag.DynadiagError, match="steps 3 to 2"):
        DynadiagCallback(path, first_step=3, last_step=2)
