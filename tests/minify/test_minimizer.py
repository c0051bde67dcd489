from __future__ import annotations

import pytest

from dynadiag.minify.minimizer import _unfinished
from dynadiag.trial.outcome import Outcome, Point
from dynadiag.trial.signature import Signature

VALUE_ERROR = Signature("exception", "ValueError", "no", cause="ValueError")
CRASH = Signature("signal", "SIGSEGV", "killed by SIGSEGV")


def told(*marks: str, signature: Signature | None = VALUE_ERROR) -> Outcome:
    """An outcome with these marks; a raise is written ``raise run 0 1 TYPE``."""
    points = []
    for mark in marks:
        word, phase, graph, call, *cause = mark.split()
        name = f"{phase} {graph} {call}"
        points.append(Point("call", f"{word} {name}", name, target=cause[0] if cause else None))
    return Outcome(signature, 1.0, points=tuple(points))


@pytest.mark.parametrize(
    ("marks", "found"),
    [
        ((), None),
        (("begin compile 0 0", "end compile 0 0", "begin run 0 0", "end run 0 0"), None),
        (("begin compile 0 0", "raise compile 0 0 ValueError"), (0, 0, "compile")),
        (("begin run 0 0", "end run 0 0", "begin run 0 1", "raise run 0 1 ValueError"), (0, 1, "run")),
        (("begin run 0 0", "end run 0 0", "begin backward 0 0"), (0, 0, "backward")),
        (("begin run 0 0", "raise run 0 0 KeyError", "begin run 1 0", "raise run 1 0 ValueError"), (1, 0, "run")),
    ],
)
def test_the_call_that_failed_is_the_one_that_did_not_end(marks: tuple[str, ...], found: object) -> None:
    assert _unfinished(told(*marks)) == found


def test_an_exception_that_the_program_caught_is_not_its_failure() -> None:
    assert _unfinished(told("begin run 0 0", "raise run 0 0 KeyError")) is None


def test_a_crash_is_where_it_began() -> None:
    marks = ("begin run 0 0", "raise run 0 0 KeyError", "begin compile 1 0")
    assert _unfinished(told(*marks, signature=CRASH)) == (1, 0, "compile")
