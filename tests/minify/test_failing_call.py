from __future__ import annotations

import pytest

from dynadiag.minify.failing_call import _caught_backend_error, _unfinished_call
from dynadiag.trial.outcome import Decision, Outcome
from dynadiag.trial.signature import Signature
from dynadiag.trial.typed_json import dump

VALUE_ERROR = Signature("exception", "ValueError", "no", cause="ValueError")
CRASH = Signature("signal", "SIGSEGV", "killed by SIGSEGV")


def told(*marks: str, signature: Signature | None = VALUE_ERROR) -> Outcome:
    """An outcome with these marks; a raise is written ``raise run 0 1 TYPE``."""
    points = [Decision("lowering", "0/0/forward/relu", "relu", target="aten.relu.default")]  # which counts for nothing
    for mark in marks:
        word, phase, graph, call, *cause = mark.split()
        name = f"{phase} {graph} {call}"
        raised = dump(Signature("exception", cause[0], "no", cause=cause[0])) if cause else None
        points.append(Decision("call", f"{word} {name}", name, target=raised))
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
    assert _unfinished_call(told(*marks)) == found


def test_an_exception_that_the_program_caught_is_not_its_failure() -> None:
    assert _unfinished_call(told("begin run 0 0", "raise run 0 0 KeyError")) is None


def test_a_crash_is_where_it_began() -> None:
    marks = ("begin run 0 0", "raise run 0 0 KeyError", "begin compile 1 0")
    assert _unfinished_call(told(*marks, signature=CRASH)) == (1, 0, "compile")


@pytest.mark.parametrize(
    ("marks", "found"),
    [
        (("begin run 0 0", "end run 0 0"), None),
        (("begin compile 1 0", "raise compile 1 0 KeyError"), (1, 0, "compile")),
        (("begin run 0 0", "end run 0 0", "begin backward 0 0", "raise backward 0 0 KeyError"), (0, 0, "backward")),
        (("raise compile 1 0 KeyError", "raise compile 2 0 ValueError"), (1, 0, "compile")),
        (("begin compile 0 0", "break compile 0 0 Unsupported"), None),
        (("begin run 0 0", "raise run 0 0 KeyError"), None),
    ],
    ids=["none", "compile", "backward", "the first", "a graph break", "a call, which may raise uncompiled too"],
)
def test_what_the_program_caught_of_a_backend(marks: tuple[str, ...], found: tuple[int, int, str] | None) -> None:
    place = _caught_backend_error(told(*marks, signature=Signature("exit", "1", "exit code 1")))
    assert (place and (place.graph, place.call, place.phase)) == found
    assert place is None or place.signature.cause == "KeyError"
