"""Record some steps of a training loop, and hold them to budgets. What the callbacks of all trainers share."""

from __future__ import annotations

import logging
import os
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch.distributed

import dynadiag
from dynadiag.capture.live import Watcher
from dynadiag.capture.output_path import check_output, named_path
from dynadiag.capture.run_metadata import after_cell, job_place, running_shell
from dynadiag.check.baseline import Baseline
from dynadiag.check.configuration import Budgets, budgets_of_arguments
from dynadiag.check.measurement import measure
from dynadiag.check.result import over_budget
from dynadiag.errors import DynadiagError, say
from dynadiag.explanation.findings import Finding
from dynadiag.render.clean import clean_line
from dynadiag.render.paths import source_location
from dynadiag.render.report import Report

_LOG = logging.getLogger("dynadiag")
_MAX_LISTED = 10  # findings in the log


@dataclass(frozen=True, slots=True)
class StepsResult:
    """What the recorded steps compiled. ``metrics`` are for a tracker, ``over`` has a sentence for each budget that is
    exceeded.
    """

    metrics: Mapping[str, float]
    over: tuple[str, ...]


class StepRecording:
    """Records once, from the beginning of step ``first`` to the end of step ``last``, both counted from 1.

    ``budgets`` are those of `dynadiag check`: ``max_breaks``, ``max_recompiles``, ``max_graphs``,
    ``max_compile_seconds``. Of a distributed job each rank writes a file of its own (``run-rank1.dynadiag``).
    """

    def __init__(
        self, path: str | Path, first: int, last: int, budgets: Mapping[str, int | float | str | None]
    ) -> None:
        """Raises `DynadiagError` for a path that is none, a budget that is unknown, or steps that are none."""
        if not (isinstance(first, int) and isinstance(last, int) and 1 <= first <= last):
            raise DynadiagError(f"steps {first} to {last}: give the first and the last step, counted from 1")
        self._budgets: Budgets = budgets_of_arguments(budgets, "DynadiagCallback")
        self._path, self._first, self._last = named_path("DynadiagCallback", path), first, last
        self._open: ExitStack | None = None  # once the first step has begun
        self._done = False
        self._recorded = (0, 0)  # the first step and the last one until now
        self._begun = Counter[str]()  # lines of the watcher by their word

    def begin_training(self, *, force: bool) -> None:
        """Raise `DynadiagError` if the recording cannot be written, or exists and may not be overwritten.

        Of a training before this one nothing is raised: it was recorded, or ended in an exception of which no callback
        hears, and its recording ends here.
        """
        self.finish()
        if not self._done:
            self._path = _path_of_rank(self._path)
            check_output(self._path, force=force)

    def before_step(self, step: int) -> None:
        """Begin to record, if this is the first step of it or a later one. Never raises.

        What another training of this thread still records ends: it began to train inside of that one, or that one
        ended in an exception.
        """
        if self._open is not None or self._done or not self._first <= step <= self._last:
            return
        try:
            thread = threading.get_ident()
            if (other := _recording_of_thread.get(thread)) is not None:
                other.stop()
            stack = ExitStack()
            stack.enter_context(dynadiag.record(self._path, force=True))
            if self._budgets.max_recompiles is not None:
                watcher = Watcher(partial(_count, self._begun))
                watcher.start()
                stack.callback(watcher.stop)
            self._open, self._recorded = stack, (step, step)
            _recording_of_thread[thread] = self
            weakref.finalize(self, _close, stack)  # the loop may end in an exception that no callback hears of
            self._end_with_cell()
        except Exception as error:  # noqa: BLE001 - the training is the user's, and goes on
            self._give_up(error)

    def _end_with_cell(self) -> None:
        """In a notebook, end with the cell. No callback hears of a training that an exception or an interrupt ends."""
        shell = running_shell()
        if shell is not None and threading.current_thread() is threading.main_thread():
            after_cell(shell, lambda result: self.finish(result.error_in_exec))

    def after_step(self, step: int, *, is_end: bool = False) -> StepsResult | None:
        """End the recording after its last step, that of the training, or once there are too many recompiles.

        Never raises.
        """
        limit = self._budgets.max_recompiles
        is_over = limit is not None and self._begun["recompiling"] > limit
        if self._recorded[0] and self in _recording_of_thread.values():
            self._recorded = (self._recorded[0], step)
        return self.finish() if is_end or step >= self._last or is_over else None

    def stop(self, error: BaseException | None = None) -> None:
        """Record no further. ``error`` is what ended the training."""
        for thread in [thread for thread, each in _recording_of_thread.items() if each is self]:
            del _recording_of_thread[thread]
        if self._open is not None:
            _close(self._open, error)

    def finish(self, error: BaseException | None = None) -> StepsResult | None:
        """End the recording, log its findings, and return its result; None where nothing is recorded. Never raises."""
        if self._open is None or self._done:
            return None
        self._done = True
        try:
            self.stop(error)
            with dynadiag.open(self._path) as recording:
                report = recording.report()
            result = self._result(report)
            _LOG.log(logging.WARNING if report.findings or result.over else logging.INFO, "%s", self._text(report))
            for sentence in result.over:
                _LOG.error("over budget: %s", sentence)
        except Exception as failure:  # noqa: BLE001 - the training is the user's, and goes on
            self._give_up(failure)
            return None
        return result

    def end_training(self) -> StepsResult | None:
        """As `finish`. That no step was recorded is told. Never raises."""
        if self._open is None and not self._done:
            _LOG.warning("nothing is recorded: training did not run %s", _steps(self._first, self._last))
        return self.finish()

    def _give_up(self, error: Exception) -> None:
        self._done = True
        say("the steps are not recorded", error)

    def _result(self, report: Report) -> StepsResult:
        measured = measure(report, report.calls, "steps")
        metrics = {
            "dynadiag/graphs": float(measured.graphs),
            "dynadiag/graph_breaks": float(measured.breaks),
            "dynadiag/recompiles": float(measured.recompiles),
            "dynadiag/compile_seconds": measured.compile_seconds or 0.0,
        }
        problems = over_budget(measured, self._budgets, Baseline())
        return StepsResult(metrics, tuple(item if isinstance(item, str) else item.text for item in problems))

    def _text(self, report: Report) -> str:
        lines = [clean_line(f"{_steps(*self._recorded)}: {report.headline.sentence}"), *_listed(report)]
        return "\n    ".join([*lines, f"dynadiag explain {self._path}"])


class StepCallback:
    """What the callbacks of all trainers are made with."""

    def __init__(
        self,
        path: str | Path = "run.dynadiag",
        *,
        first_step: int = 1,
        last_step: int = 10,
        stop: bool = True,
        force: bool = False,
        **budgets: int | float | str | None,
    ) -> None:
        """Raises `DynadiagError` for a budget that is unknown, or steps that are none."""
        super().__init__()
        self._recording = StepRecording(path, first_step, last_step, budgets)
        self._stop, self._force = stop, force

    def _must_stop(self, result: StepsResult) -> bool:
        """Whether training stops at this step. The log says so, since a trainer gives no reason."""
        if is_over := bool(result.over) and self._stop:
            _LOG.error("training stops here (stop=False lets it go on)")
        return is_over

    def _send(self, send: Callable[[], object]) -> None:
        """Give figures to a tracker, whose faults are not the training's. Never raises."""
        try:
            send()
        except Exception as error:  # noqa: BLE001 - as above
            say("a tracker did not take the figures of dynadiag", error)


_recording_of_thread: weakref.WeakValueDictionary[int, StepRecording] = weakref.WeakValueDictionary()


def _close(stack: ExitStack, error: BaseException | None = None) -> None:
    """End a recording. ``error`` is what ended the training; Python keeps the one that has ended the program."""
    if error is None and running_shell() is None:
        error = getattr(sys, "last_value", None)
    stack.__exit__(None if error is None else type(error), error, getattr(error, "__traceback__", None))


def _steps(first: int, last: int) -> str:
    return f"step {first}" if first == last else f"steps {first} to {last}"


def _count(begun: Counter[str], line: str) -> None:
    """Count a line of the watcher, ``14:02:40 recompiling 0/1 ...``."""
    begun[line.split(maxsplit=2)[1]] += 1


def _listed(report: Report) -> Iterator[str]:
    """A line for each of the first findings."""
    for item in report.findings[:_MAX_LISTED]:
        place = source_location(item.span.file, item.span.line, None, report.run.cwd)
        yield clean_line(f"{_label(item)} {place} {item.title}")
    if len(report.findings) > _MAX_LISTED:
        yield f"and {len(report.findings) - _MAX_LISTED} more"


def _label(item: Finding) -> str:
    return f"{item.rule}[{item.label}]" if item.label else item.rule


def _path_of_rank(path: Path) -> Path:
    """The file of this process in its job. Some trainers give a process no rank but in its process group."""
    rank = job_place(os.environ).get("rank")
    group = torch.distributed
    if rank is None and group.is_available() and group.is_initialized() and group.get_world_size() > 1:
        rank = group.get_rank()
    return path if rank is None else path.with_name(f"{path.stem}-rank{rank}{path.suffix}")
