"""The outcome that is built from a process's events and its exit code."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from dynadiag.trial.events import (
    KernelRunning,
    Note,
    PassApplied,
    RunFacts,
    TrialEnded,
    TrialEvent,
    ValuesDiverged,
    parse_events,
)
from dynadiag.trial.outcome import Decision, Outcome, build_outcome
from dynadiag.trial.plan import Plan
from dynadiag.trial.signature import Signature
from dynadiag.trial.supervise import ProcessResult

FAILURE = Signature("exception", "torch.AcceleratorError", "CUDA error: device-side assert triggered")
RAISED = TrialEnded(FAILURE, RunFacts())
# What libstdc++ prints when an exception leaves a destructor.
ABORTED = """terminate called after throwing an instance of 'c10::AcceleratorError'
  what():  CUDA error: device-side assert triggered
Search for `cudaErrorAssert' in the documentation.
frame #0: c10::Error::Error()
"""


def _ended(*events: TrialEvent, code: int, printed: str = "", accuracy: bool = False) -> Outcome:
    return build_outcome(ProcessResult(events, 1.0, None), code, 1, Plan(accuracy=accuracy), printed)


def test_a_reported_exception_counts_and_not_the_later_abort() -> None:
    assert _ended(RAISED, code=-signal.SIGABRT).signature == FAILURE


@pytest.mark.parametrize("told", [TrialEnded(None, RunFacts()), Note("")])
def test_a_killed_process_failed_by_its_signal(told: TrialEvent) -> None:
    found = _ended(told, code=-signal.SIGSEGV, printed=ABORTED).signature
    assert found == Signature("signal", "SIGSEGV", "killed by SIGSEGV")


def test_the_programs_own_comparison_does_not_hide_a_crash_under_accuracy() -> None:
    found = _ended(RAISED, code=-signal.SIGSEGV, accuracy=True).signature
    assert found is not None
    assert found.kind == "signal"
    assert _ended(RAISED, code=1, accuracy=True).passed


def test_an_error_of_a_device_that_aborts_the_process_is_that_error() -> None:
    found = _ended(code=-signal.SIGABRT, printed=ABORTED).signature
    assert found is not None
    assert (found.kind, found.type) == ("signal", "SIGABRT")
    assert found.same_as(FAILURE)


def test_the_kernel_that_was_running_at_the_end_is_the_diverged_one() -> None:
    apart = ValuesDiverged(("far",), (), 9.0)
    begun, ended = KernelRunning(("late",)), KernelRunning(())
    assert _ended(apart, begun, code=-signal.SIGSEGV).diverged == ("late",)
    assert _ended(apart, begun, ended, code=1).diverged == ("far",)


def test_a_pass_of_the_programs_has_the_lines_of_what_it_changed_and_last_its_own() -> None:
    own = Decision("pass", "0/0/fold/1", "fold", lines=(("train.py", 9),))
    applied = PassApplied(own.key, ("relu",), (("train.py", 29), ("train.py", 9)))
    (found,) = _ended(own, applied, TrialEnded(None, RunFacts()), code=0).points
    assert (found.nodes, found.lines) == (("relu",), (("train.py", 29), ("train.py", 9)))
    other = replace(applied, lines=(("train.py", 29),))
    (found,) = _ended(own, other, TrialEnded(None, RunFacts()), code=0).points
    assert found.lines == (("train.py", 29), ("train.py", 9))


def test_lines_that_are_no_events_are_left_out() -> None:
    lines = [
        b'{"event": "Note", "text": "kept"}',
        b'{"event": "Note"}',
        b'{"event": "Exec", "text": ""}',
        b'{"event": "No',
    ]
    assert list(parse_events(b"\n".join([*lines[:2], b"[]", *lines[2:]]))) == [Note("kept")]


def test_a_decision_comes_through_the_stream_with_its_lines() -> None:
    line = b'{"event": "Decision", "group": "pass", "key": "k", "name": "n", "lines": [["a.py", 3]]}'
    assert list(parse_events(line)) == [Decision("pass", "k", "n", lines=(("a.py", 3),))]
