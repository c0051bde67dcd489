"""A training loop of Lightning. It takes seconds to import, so no test does while tests are collected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import Logger

from dynadiag.integrations.lightning import DynadiagCallback

__all__ = ["BrokenTracker", "DynadiagCallback", "Tracker", "train"]


class Tracker(Logger):
    """A logger that keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.metrics: list[tuple[dict[str, float], int | None]] = []

    @property
    def name(self) -> str:
        return "tracker"

    @property
    def version(self) -> int:
        return 0

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.metrics.append((metrics, step))

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """There are none."""


class BrokenTracker(Tracker):
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        raise OSError("unreachable")


class Model(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.step = torch.compile(self.loss, backend="eager", dynamic=False)

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        if x.isnan().any().item():
            x = x.nan_to_num()
        return self.layer(x).square().mean()

    def training_step(self, batch: torch.Tensor, _number: int) -> torch.Tensor:
        loss: torch.Tensor = self.step(batch)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def train(
    folder: Path,
    callback: DynadiagCallback,
    tracker: Tracker,
    sizes: tuple[int, ...] = (2, 2, 2, 2),
    wrong: torch.Tensor | None = None,
) -> Trainer:
    made = Trainer(
        default_root_dir=str(folder),
        max_epochs=1,
        accelerator="cpu",
        logger=tracker,
        callbacks=[callback],
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    batches = [torch.ones(size, 4) for size in sizes]
    data: Any = batches if wrong is None else [*batches, wrong]
    loader = torch.utils.data.DataLoader(data, batch_size=None)
    made.fit(Model(), loader)
    return made
