"""What long work prints on stderr."""

from __future__ import annotations

import io
import time

import pytest

from dynadiag.commands import progress as progress_module
from dynadiag.commands.progress import ProgressPrinter


def test_a_trial_is_told_in_words() -> None:
    stream = io.StringIO()
    with ProgressPrinter(stream) as progress:
        progress.on_trial(1, "as written", "same", 0.5)
        progress.on_trial(2, "eager", "pass", 0.25)
    assert stream.getvalue().splitlines() == [
        "trial 1: as written: same failure (0.5 s)",
        "trial 2: eager: pass (0.2 s)",
    ]


def test_a_first_run_that_takes_long_names_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "_LONG", 0.01)
    stream = io.StringIO()
    with ProgressPrinter(stream) as progress, progress.first_run(600.0):
        while not stream.getvalue():
            time.sleep(0.01)
    assert stream.getvalue() == "the program has run for 0 s; it is stopped after 600 s (--timeout S)\n"


def test_a_first_run_that_ended_is_not_told() -> None:
    stream = io.StringIO()
    with ProgressPrinter(stream) as progress, progress.first_run(600.0):
        progress.on_trial(1, "as written", "same", 0.5)
        assert progress._first_run is not None
        assert progress._first_run.finished.is_set()
    assert stream.getvalue() == "trial 1: as written: same failure (0.5 s)\n"
