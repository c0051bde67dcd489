"""A training loop of transformers. It takes seconds to import, so no test does while tests are collected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainerCallback, TrainingArguments

from dynadiag.integrations.transformers import DynadiagCallback

__all__ = ["BrokenTracker", "DynadiagCallback", "Raises", "StopsAtEpoch", "Tracker", "trainer"]


class Tracker(TrainerCallback):
    """Stands for a tracker, which is told in `on_log`."""

    def __init__(self) -> None:
        self.logs: list[dict[str, Any]] = []
        self.is_closed = False

    def on_log(self, _args: Any, _state: Any, _control: Any, logs: dict[str, Any], **_: Any) -> None:
        assert not self.is_closed
        self.logs.append(dict(logs))

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self.is_closed = True


class BrokenTracker(TrainerCallback):
    """Stands for a tracker that takes no figures but those it knows."""

    def on_log(self, _args: Any, _state: Any, _control: Any, logs: dict[str, Any], **_: Any) -> None:
        if "dynadiag/graphs" in logs:
            raise OSError("unreachable")


class StopsAtEpoch(TrainerCallback):
    def on_epoch_end(self, _args: Any, _state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop = True


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


class Raises(TrainerCallback):
    def on_step_end(self, *_: Any, **__: Any) -> None:
        raise KeyError("mine")


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
