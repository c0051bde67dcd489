"""A callback for `transformers.Trainer`: record some steps, and report what torch.compile did in them."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import CallbackHandler

from dynadiag.integrations.step_recording import StepCallback, StepsResult


class DynadiagCallback(StepCallback, TrainerCallback):
    """Records the steps from ``first_step`` to ``last_step`` into ``path``.

    The findings go to the log (``dynadiag``), and the counts to the trainer's log and its trackers as
    ``dynadiag/graph_breaks``, ``dynadiag/recompiles``, ``dynadiag/graphs`` and ``dynadiag/compile_seconds``. If a
    budget is exceeded (``max_recompiles=2``; those of `dynadiag check`) training stops, unless ``stop=False``.
    """

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Raise `DynadiagError` if the recording cannot be written, before any work is done."""
        self._recording.begin_training(force=self._force)

    def on_step_begin(self, _args: TrainingArguments, state: TrainerState, _control: TrainerControl, **_: Any) -> None:
        """Begin to record at the first step."""
        self._recording.before_step(state.global_step + 1)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """End the recording after its last step, or the last one of training: at its end trackers are closed."""
        is_end = control.should_training_stop
        self._report(self._recording.after_step(state.global_step, is_end=is_end), args, state, control)

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """End the recording, if an evaluation ends training: the trackers are still open."""
        if control.should_training_stop:
            self._report(self._recording.finish(), args, state, control)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """End the recording, if training ends before its last step."""
        self._report(self._recording.end_training(), args, state, control)

    def _report(
        self, result: StepsResult | None, args: TrainingArguments, state: TrainerState, control: TrainerControl
    ) -> None:
        if result is None:
            return
        logs = dict(result.metrics)
        state.log_history.append({**logs, "step": state.global_step})
        handler = _handler()
        if handler is not None:
            should_log = control.should_log
            self._send(partial(handler.on_log, args, state, control, logs))
            control.should_log = should_log  # what the step itself has to log is still due
        if self._must_stop(result):
            control.should_training_stop = True


def _handler() -> CallbackHandler | None:
    """The handler that calls the callbacks of this trainer, trackers among them. Callbacks are not given it."""
    frame = sys._getframe(1)
    while frame is not None and not isinstance(frame.f_locals.get("self"), CallbackHandler):
        frame = frame.f_back  # type: ignore[assignment]
    return None if frame is None else frame.f_locals["self"]
