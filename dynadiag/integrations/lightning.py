"""A callback for `lightning.Trainer`: record some batches, and report what torch.compile did in them."""

from __future__ import annotations

from functools import partial
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from dynadiag.integrations.step_recording import StepCallback, StepsResult


class DynadiagCallback(StepCallback, Callback):
    """Records the training batches from ``first_step`` to ``last_step`` into ``path``.

    The findings go to the log (``dynadiag``), and the counts to the trainer's loggers as ``dynadiag/graph_breaks``,
    ``dynadiag/recompiles``, ``dynadiag/graphs`` and ``dynadiag/compile_seconds``. If a budget is exceeded
    (``max_recompiles=2``; those of `dynadiag check`) training stops, unless ``stop=False``.
    """

    _step = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Raise `DynadiagError` if the recording cannot be written, before any work is done."""
        self._recording.begin_training(force=self._force)

    def on_train_batch_start(self, *_: Any, **__: Any) -> None:
        """Begin to record at the first batch."""
        self._step += 1
        self._recording.before_step(self._step)

    def on_train_batch_end(self, trainer: Trainer, *_: Any, **__: Any) -> None:
        """End the recording after its last batch."""
        self._report(self._recording.after_step(self._step), trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """End the recording, if training ends before its last batch."""
        self._report(self._recording.end_training(), trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:  # noqa: ARG002
        """End the recording: what was recorded is kept."""
        self._report(self._recording.finish(exception), trainer)

    def _report(self, result: StepsResult | None, trainer: Trainer) -> None:
        if result is None:
            return
        for logger in trainer.loggers:
            self._send(partial(logger.log_metrics, dict(result.metrics), step=trainer.global_step))
        if self._must_stop(result):
            trainer.should_stop = True
