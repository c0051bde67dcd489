"""A variant's process: its limits, and what is left when it is gone.

The programs end before torch would be imported, so that a process starts at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dynadiag.compare.variant import Variant
from dynadiag.compare.variant_process import VariantFailedError, VariantProcess
from dynadiag.trial.program import Program
from dynadiag.trial.supervise import Limits

Start = Callable[..., VariantProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[VariantProcess] = []

    def begin(source: str, limits: Limits) -> VariantProcess:
        path = tmp_path / "program.py"
        path.write_text(source + "\ndef make(): ...\n")
        program = Program.parse(f"{path}:make")
        recording = tmp_path / "variant.dynadiag"
        started.append(VariantProcess(program, Variant("make", "eager"), recording, limits, dict(os.environ)))
        return started[-1]

    yield begin
    for subject in started:
        subject.kill("the test is over")


def failure(subject: VariantProcess) -> tuple[str, str]:
    with pytest.raises(VariantFailedError) as caught:
        subject.request("first")
    return caught.value.signature.kind, caught.value.signature.type


def test_a_hang_ends_at_the_limit(start: Start) -> None:
    subject = start("import threading; threading.Event().wait()", Limits(0.3, 1 << 40))
    assert failure(subject) == ("hang", "timeout")


def test_too_much_memory_ends_it(start: Start) -> None:
    subject = start("import threading; threading.Event().wait()", Limits(60, 1))
    assert failure(subject) == ("memory", "memory")


def test_an_exit_that_the_program_makes_by_itself(start: Start) -> None:
    assert failure(start("import os; os._exit(7)", Limits(60, 1 << 40))) == ("exit", "7")


def test_a_signal_is_named(start: Start) -> None:
    assert failure(start("import os; os.abort()", Limits(60, 1 << 40))) == ("signal", "SIGABRT")


def test_an_exception_at_the_import_is_the_programs_failure(start: Start) -> None:
    assert failure(start("raise KeyError('absent')", Limits(60, 1 << 40))) == ("exception", "KeyError")


def test_no_process_and_no_descriptor_is_left(start: Start) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    subject = start("import threading; threading.Event().wait()", Limits(60, 1 << 40))
    subject.kill("the test is over")
    subject.kill("the test is over")  # again is harmless
    assert subject._process.returncode == -9
    assert set(Path("/proc/self/fd").iterdir()) <= before
