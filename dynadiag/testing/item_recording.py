"""Record what torch compiles while one test runs, in the test's own process."""

from __future__ import annotations

import itertools
import logging
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from dynadiag.capture.recorder import Recorder
from dynadiag.capture.run_metadata import run_footer, run_header
from dynadiag.check.measurement import Measurement, measure
from dynadiag.explanation.explanation import Explanation, explain
from dynadiag.explanation.findings import Finding
from dynadiag.recording.journal import Journal
from dynadiag.recording.opening import fold_in_place, open_recording
from dynadiag.render.findings import finding_text
from dynadiag.render.printer import Printer
from dynadiag.torch_private.loggers import TRACE_LOGGER

_WIDTH = 100  # columns of a report in a section of pytest's


class ItemRecording:
    """A recording of one test. Its journal is made at the first event: a test that compiles nothing leaves no file."""

    def __init__(self, name: str, keep: Path | None = None) -> None:
        self._name, self._keep = name, keep
        self._folder = Path(tempfile.mkdtemp(prefix="dynadiag-test-"))
        self._path = self._folder / "test.dynadiag"
        self._began = time.time()
        self._recorder = Recorder(self._open_journal)

    def _open_journal(self) -> Journal:
        path = self._path
        if path.exists():  # a fork of this process, which shares the folder
            path = Path(tempfile.mkdtemp(prefix="fork-", dir=self._folder), "test.dynadiag")
        journal = Journal.create(path)
        journal.append({"dynadiag_run": run_header(self._name)})
        return journal

    def start(self) -> None:
        """Listen to torch."""
        self._recorder.start()

    def stop(self, failure: BaseException | None = None) -> None:
        """Listen no further. ``failure`` is the exception that ended the test."""
        if failure is not None:
            self._recorder.record_exception(failure)
        self._recorder.stop()

    def explain_so_far(self) -> Explanation | None:
        """What was compiled until now; None where nothing was."""
        if not self._path.exists():
            return None
        copy = self._folder / "so-far.dynadiag"
        shutil.copyfile(self._path, copy)
        return self._explained(copy, 0)

    def finish(self, exit_code: int) -> Explanation | None:
        """Explain what was recorded, and keep the recording where it is to be kept."""
        if not self._path.exists():
            return None
        made = self._explained(self._path, exit_code)
        if self._keep is not None:
            self._keep.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self._path, _free_name(self._keep, self._name))
        return made

    def _explained(self, path: Path, exit_code: int) -> Explanation:
        """End a journal, fold it and explain it."""
        end = Journal.reopen(path)
        end.append({"dynadiag_end": {**run_footer(self._began), "peak_memory": None}})  # that of all tests so far
        end.append({"dynadiag_exit": {"code": exit_code, "notes": []}})
        end.close()
        fold_in_place(path)  # this process, which wrote it, still runs: opening it would leave it a journal
        with open_recording(path) as recording:
            return explain(recording)

    def remove(self) -> None:
        """Remove what is on disk."""
        shutil.rmtree(self._folder, ignore_errors=True)


def hide_trace(config: pytest.Config) -> None:
    """Keep torch's trace, which is on while we record, out of the section "Captured log call" of a failing test."""
    logging_plugin = config.pluginmanager.getplugin("logging-plugin")
    handler = getattr(logging_plugin, "report_handler", None)
    if handler is not None and _is_no_trace not in handler.filters:
        handler.addFilter(_is_no_trace)


def _is_no_trace(record: logging.LogRecord) -> bool:
    return record.name != TRACE_LOGGER


def target_of(node: str) -> str:
    """The target of a check that a test is: its id without its parameters."""
    return node.partition("[")[0]


def measurement_of(explanation: Explanation, node: str) -> Measurement:
    """What a check needs of a recorded test."""
    printer = Printer(width=_WIDTH)

    def show(item: Finding) -> str:
        return "\n".join(finding_text(item, explanation, printer))

    return measure(explanation, (), target_of(node), names=(node,), show=show)


def _free_name(folder: Path, name: str) -> Path:
    stem = "".join(char if char.isalnum() or char in "._-" else "_" for char in name)[-150:]
    names = (f"{stem}-{number}" if number else stem for number in itertools.count())
    return next(path for each in names if not (path := folder / f"{each}.dynadiag").exists())
