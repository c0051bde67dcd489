"""A session of pytest whose tests are recorded: budgets of the marker, the report of each failing test, the summary."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dynadiag.check.baseline import Baseline, changes_of, read_baseline, updated_baseline
from dynadiag.check.configuration import Budgets, budgets_of_arguments, find_configuration
from dynadiag.check.measurement import Measurement
from dynadiag.check.result import CheckResult, after_update, check, over_budget
from dynadiag.errors import DynadiagError
from dynadiag.explanation.formatting import count
from dynadiag.explanation.rules import Rule
from dynadiag.recording.store import atomic_write
from dynadiag.render.check_report import check_text, problem_headline
from dynadiag.render.printer import Printer
from dynadiag.testing.item_recording import ItemRecording, hide_trace, measurement_of, target_of

RECORDING = pytest.StashKey[ItemRecording]()
_MEASURED = pytest.StashKey[Measurement]()
_CLEAN = pytest.StashKey[bool]()  # the test passed, and compiled nothing
_FIGURES = ("breaks", "recompiles", "graphs")
_NOUNS = ("graph break", "recompile", "graph")
_UPDATE_OF_CHECK, _UPDATE_HERE = " --update", " --dynadiag-update"  # the option that a message names
_MARKER_BUDGETS = ("max_breaks", "max_recompiles", "max_graphs", "max_compile_seconds")


class RecordedSession:
    """The hooks of a recorded session. With xdist each worker has one, and the controller sums up."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._checks = any(config.getoption(f"dynadiag{name}") for name in ("", "_baseline", "_update"))
        folder = config.getoption("dynadiag_recordings")
        self._keep = Path(folder).absolute() if folder else None
        self._all = self._checks or self._keep is not None
        self._runs: list[Measurement] = []
        self._clean = set[str]()  # targets of tests that compiled nothing
        self._unfinished = set[str]()  # targets of tests that failed, or were skipped
        self._has_run = False
        self._faults: list[str] = []
        self._result: CheckResult | None = None
        try:
            self._configuration, self._root = find_configuration(config.rootpath)
            self._baseline_path, self._baseline = self._find_baseline()
        except DynadiagError as error:
            raise pytest.UsageError(f"dynadiag: {_with_own_option(str(error))}") from error

    def _find_baseline(self) -> tuple[Path, Baseline | None]:
        """The file, and what it knows; None where there is none and none was named."""
        named = self._config.getoption("dynadiag_baseline")
        path = Path(named).absolute() if named else self._root / self._configuration.baseline
        if path.exists() or (named and not self._config.getoption("dynadiag_update")):
            return path, read_baseline(path)
        return path, None

    # One test

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        """Record from before the first fixture on."""
        marked = item.get_closest_marker("dynadiag") is not None
        if self._all or marked:
            self._guarded(self._start, item, marked)
        yield

    def _start(self, item: pytest.Item, marked: bool) -> None:
        torch = sys.modules.get("torch")
        if marked and torch is not None:
            torch.compiler.reset()  # what an earlier test has compiled would not be seen
        hide_trace(item.config)
        recording = ItemRecording(item.nodeid, self._keep)
        item.stash[RECORDING] = recording
        recording.start()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Hold the test to its marker."""
        outcome: Any = yield
        self._guarded(self._finish, item, outcome.excinfo[1] if outcome.excinfo else None)
        if outcome.excinfo is None:
            over = list(_over_marker(item))
            if over:
                outcome.force_exception(pytest.fail.Exception("\n".join(over), pytrace=False))

    def _finish(self, item: pytest.Item, failure: BaseException | None) -> None:
        recording = item.stash.get(RECORDING, None)
        if recording is None:
            return
        del item.stash[RECORDING]
        try:
            recording.stop(failure)
            passed = failure is None or isinstance(failure, pytest.skip.Exception)
            explanation = recording.finish(0 if passed else 1)
        finally:
            recording.remove()
        if explanation is None:
            item.stash[_CLEAN] = failure is None
        else:
            measured = measurement_of(explanation, item.nodeid)
            item.stash[_MEASURED] = measured
            item.user_properties.extend((f"dynadiag.{name}", getattr(measured, name)) for name in _FIGURES)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        """Put what was recorded into the report, with which it goes from a worker to the controller."""
        outcome: Any = yield
        if call.when == "teardown":
            return
        if call.when == "setup" and call.excinfo is not None:
            self._guarded(self._finish, item, call.excinfo.value)
        measured = item.stash.get(_MEASURED, None)
        if measured is not None:
            _add_to_report(outcome.get_result(), measured)
        elif call.when == "call":
            outcome.get_result().dynadiag_clean = item.stash.get(_CLEAN, False)

    def _guarded(self, action: Any, *arguments: Any) -> None:
        """A fault of ours never fails a test: it is told at the end."""
        try:
            action(*arguments)
        except Exception as error:  # noqa: BLE001 - the test is the user's, and goes on
            text = "".join(traceback.format_exception_only(error)).strip()
            self._faults.append(f"a test was not recorded: {text}")

    # The session

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect, in the controller or where there is only one process."""
        self._has_run = True
        plain = getattr(report, "dynadiag", None)
        if plain is not None and not _is_worker(self._config):
            self._runs.append(msgspec.convert(plain, Measurement))
        elif getattr(report, "dynadiag_clean", False):
            self._clean.add(target_of(report.nodeid))
        if not report.passed:
            self._unfinished.add(target_of(report.nodeid))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Compare with the baseline and the budgets; what is new fails the session."""
        if _is_worker(self._config) or not (self._checks and self._has_run):
            return
        runs = sorted(self._runs, key=lambda run: run.target)
        try:
            update = self._config.getoption("dynadiag_update")
            result = self._checked_and_updated(runs) if update else self._checked(runs)
        except DynadiagError as error:
            self._faults.append(str(error))
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
            return
        failed = {f"failed {run.target}" for run in runs}  # pytest tells of those itself
        self._result = replace(result, problems=tuple(one for one in result.problems if one.identity not in failed))
        if not self._result.ok and session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _checked(self, runs: Sequence[Measurement]) -> CheckResult:
        """The result of the session: without a baseline every finding is new, as for `dynadiag check`."""
        return check(runs, self._baseline, self._budgets, self._root, self._clean - self._unfinished)

    def _checked_and_updated(self, runs: Sequence[Measurement]) -> CheckResult:
        before = self._baseline or Baseline()
        self._baseline = updated_baseline(before, runs, self._root, clean=self._clean - self._unfinished)
        with atomic_write(self._baseline_path.resolve(), True) as scratch:
            scratch.write_bytes(self._baseline.to_json())
        return after_update(
            self._checked(runs), changes_of(os.path.relpath(self._baseline_path), before, self._baseline)
        )

    def _budgets(self, run: Measurement) -> Budgets:
        return self._configuration.budgets(run.names, Budgets())

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Tell what the tests compiled, and what of it is new."""
        for fault in dict.fromkeys(self._faults):
            terminalreporter.write_line(f"dynadiag: {fault}")
        if _is_worker(self._config) or not (self._all and self._has_run):
            return
        terminalreporter.section("dynadiag")
        totals = [sum(getattr(run, name) for run in self._runs) for name in _FIGURES]
        totals_text = ", ".join(count(total, noun) for total, noun in zip(totals, _NOUNS, strict=True))
        terminalreporter.write_line(f"{count(len(self._runs), 'test')} compiled something: {totals_text}")
        for run in self._runs:
            for line in _test_lines(run, str(self._root)):
                terminalreporter.write_line(line)
        if self._result is not None:
            text = check_text(self._result, Printer(width=terminalreporter._tw.fullwidth))
            terminalreporter.write(f"\n{_with_own_option(text)}")


def _with_own_option(text: str) -> str:
    return text.replace(_UPDATE_OF_CHECK, _UPDATE_HERE)


def _test_lines(run: Measurement, root: str) -> Iterator[str]:
    """A test with its figures, and a line for each of its breaks and recompiles. Nothing where it has none."""
    figures = [
        count(number, noun) for number, noun in zip((run.breaks, run.recompiles), _NOUNS, strict=False) if number
    ]
    if not figures:
        return
    yield f"{run.names[-1]}: {', '.join(figures)}"
    for item in run.occurrences:
        yield f"    {problem_headline(item, root)}"
    more = run.recompiles - sum(item.rule == Rule.RECOMPILE for item in run.occurrences)
    if more > 0:
        yield f"    and {count(more, 'more recompile')} of these causes"


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def _over_marker(item: pytest.Item) -> Iterator[str]:
    """A sentence for each budget of the test's marker that it is over."""
    marker = item.get_closest_marker("dynadiag")
    if marker is None:
        return
    unknown = sorted(set(marker.kwargs) - set(_MARKER_BUDGETS))
    if unknown or marker.args:
        yield f"@pytest.mark.dynadiag takes {', '.join(_MARKER_BUDGETS)} by name, not {(*marker.args, *unknown)}"
        return
    try:
        budgets = budgets_of_arguments(marker.kwargs, "marker")
    except DynadiagError as error:
        yield str(error)
        return
    measured = item.stash.get(_MEASURED, None)
    if measured is not None:
        problems = over_budget(measured, budgets, Baseline())
        yield from (problem.text for problem in problems if not isinstance(problem, str))


def _add_to_report(report: pytest.TestReport, measured: Measurement) -> None:
    report.dynadiag = msgspec.to_builtins(measured)  # type: ignore[attr-defined]  # a report takes any attribute
    shown = "\n\n".join(dict.fromkeys(each.shown for each in measured.occurrences))
    if report.failed and shown:
        report.sections.append(("dynadiag", shown))
