"""The callback in a real training loop of Lightning, where that is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import dynadiag

pytest.importorskip("lightning")
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import Logger

from dynadiag.integrations.lightning import DynadiagCallback

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice about workers, its uses of what torch deprecates


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


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


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


def test_some_batches_are_recorded_and_told(tmp_path: Path) -> None:
    tracker, path = Tracker(), tmp_path / "run.dynadiag"
    made = train(tmp_path, DynadiagCallback(path, first_step=1, last_step=2), tracker)
    with dynadiag.open(path) as recording:
        assert [item.gb_id for item in recording.breaks] == ["GB0124"]
    (told,) = [metrics for metrics, _ in tracker.metrics if "dynadiag/graph_breaks" in metrics]
    assert told["dynadiag/graph_breaks"] == 1
    assert made.global_step == 4


def test_training_stops_at_the_step_that_recompiles_once_too_often(tmp_path: Path) -> None:
    callback = DynadiagCallback(tmp_path / "run.dynadiag", last_step=100, max_recompiles=1)
    made = train(tmp_path, callback, Tracker(), (2, 2, 3, 4, 5, 6))
    assert made.global_step < 6


def test_a_loop_that_raises_leaves_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "run.dynadiag"
    with pytest.raises(RuntimeError, match="same reduction dim"):
        train(tmp_path, DynadiagCallback(path), Tracker(), wrong=torch.ones(2, 5))
    with dynadiag.open(path) as recording:
        assert len(recording.compiles()) > 0
