"""Record some steps of a training loop, and hold them to budgets. What the callbacks of all trainers share."""

from __future__ import annotations

import logging
import os
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import dynadiag
from dynadiag.capture.live import Watcher
from dynadiag.capture.run_metadata import job_place
from dynadiag.check.baseline import Baseline
from dynadiag.check.configuration import Budgets, parse_budgets
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
    """Records from the beginning of step ``first`` to the end of step ``last``, both counted from 1.

    ``budgets`` are those of `dynadiag check`: ``max_breaks``, ``max_recompiles``, ``max_graphs``,
    ``max_compile_seconds``. Of a distributed job each rank writes a file of its own (``run-rank1.dynadiag``).
    """

    def __init__(
        self, path: str | Path, first: int, last: int, budgets: Mapping[str, int | float | str | None]
    ) -> None:
        """Raises `DynadiagError` for a budget that is unknown, or steps that are none."""
        if not 1 <= first <= last:
            raise DynadiagError(f"steps {first} to {last}: give the first and the last step, counted from 1")
        named = {name.replace("_", "-"): value for name, value in budgets.items()}
        self._budgets: Budgets = parse_budgets(named, "DynadiagCallback")
        self._path, self._first, self._last = _path_of_rank(Path(path)), first, last
        self._open: ExitStack | None = None
        self._done = False
        self._begun = Counter[str]()  # lines of the watcher by their word

    def check_path(self, *, force: bool) -> None:
        """Raise `DynadiagError` if the recording exists and may not be overwritten. Called before training begins."""
        if self._path.exists() and not force:
            raise DynadiagError(f"{self._path} exists: give another name, or force=True to overwrite it")

    def before_step(self, step: int) -> None:
        """Begin to record, if this is the first step of it or a later one. Never raises."""
        if self._open is not None or self._done or not self._first <= step <= self._last:
            return
        try:
            stack = ExitStack()
            stack.enter_context(dynadiag.record(self._path, force=True))
            if self._budgets.max_recompiles is not None:
                watcher = Watcher(partial(_count, self._begun))
                watcher.start()
                stack.callback(watcher.stop)
            self._open = stack
            weakref.finalize(self, stack.close)  # the loop may end in an exception that no callback hears of
        except Exception as error:  # noqa: BLE001 - the training is the user's, and goes on
            self._give_up(error)

    def after_step(self, step: int) -> StepsResult | None:
        """End the recording after its last step, or once there are too many recompiles. Never raises."""
        limit = self._budgets.max_recompiles
        is_over = limit is not None and self._begun["recompiling"] > limit
        return self.finish() if step >= self._last or is_over else None

    def finish(self) -> StepsResult | None:
        """End the recording, log its findings, and return its result; None where nothing is recorded. Never raises."""
        if self._open is None:
            return None
        stack, self._open, self._done = self._open, None, True
        try:
            stack.close()
            with dynadiag.open(self._path) as recording:
                report = recording.report()
            result = self._result(report)
            _LOG.log(logging.WARNING if report.findings or result.over else logging.INFO, "%s", self._text(report))
            for sentence in result.over:
                _LOG.error("over budget: %s", sentence)
        except Exception as error:  # noqa: BLE001 - the training is the user's, and goes on
            self._give_up(error)
            return None
        return result

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
        lines = [clean_line(report.headline.sentence), *_listed(report)]
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
    rank = job_place(os.environ).get("rank")
    return (path if rank is None else path.with_name(f"{path.stem}-rank{rank}{path.suffix}")).absolute()
