"""What else fails in a program is told, although its first failure ends it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dynadiag.bisection.bisector import HOOKS
from dynadiag.bisection.trial_log import TrialLog
from dynadiag.bisection.trial_search import TrialSearch
from dynadiag.minify.minify_result import MinifyResult
from dynadiag.minify.minimizer import _ReductionListener
from dynadiag.minify.other_failures import FRAME, look_for_other_failures
from dynadiag.minify.reduction_task import CandidateTried
from dynadiag.minify.source_minimizer import look_for_next_failure, reduce_program
from dynadiag.minify.source_trials import source_trials
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import Plan
from dynadiag.trial.program import Program
from dynadiag.trial.runner import Runner
from dynadiag.trial.signature import Signature
from dynadiag.trial.supervise import Limits
from tests.interpreters import warm

_SHARED = """
import collections, functools, os, torch

compiled = functools.partial(torch.compile, backend="eager")
whole = functools.partial(compiled, fullgraph=True)

def breaks(x):
    torch._dynamo.graph_break()
    return x

def branches(x):
    return x + 1 if x.sum() > 0 else x

def queues(x):
    return x * len(collections.deque([1], maxlen=x.shape[0] - 1))

def aborts(x):
    if torch.compiler.is_compiling():
        os.abort()
    return x

def moves(x, entries):
    entries.move_to_end("a")
    return x + 1

class Model(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) * 2

def checked(x):
    entries = collections.OrderedDict(a=1, b=2)
    compiled(moves)(x, entries)
    assert list(entries) == ["b", "a"]

x = torch.ones(3)
"""


_SLOW = pytest.mark.slow  # six more of the same kind
_TWO_FAILURES = [  # programs, the message of their first failure, and that of their second
    ("whole(breaks)(x)\nwhole(branches)(x)", "graph_break", "Data-dependent branching"),
    ("compiled(queues, dynamic=True)(x)\nwhole(breaks)(x)", "maxlen must be a constant", "graph_break"),
    ("compiled(aborts)(x)\nwhole(breaks)(x)", "killed by SIGABRT", "graph_break"),
    ("checked(x)\nwhole(breaks)(x)", "", "graph_break"),
    ("whole(branches)(x)\nwhole(breaks)(x)", "Data-dependent branching", "graph_break"),
    ("whole(breaks)(x)\ncompiled(queues, dynamic=True)(x)", "graph_break", "maxlen must be a constant"),
    ("whole(Model(Model(breaks)))(x)\nwhole(branches)(x)", "graph_break", "Data-dependent branching"),
    ("compiled(Model(queues), dynamic=True)(x)\nwhole(branches)(x)", "maxlen must be", "Data-dependent branching"),
    ("whole(breaks)(x)\ncompiled(aborts)(x)", "graph_break", "killed by SIGABRT"),
    ("whole(breaks)(x)\nchecked(x)", "graph_break", "AssertionError"),
]


@contextmanager
def _failing_search(program: str, folder: Path) -> Iterator[tuple[TrialSearch, Plan, Outcome]]:
    """A search of a program that fails, the plan that fails, and its outcome."""
    file = folder / "program.py"
    file.write_text(_SHARED + program + "\n")
    target, plan = Program.parse(str(file)), Plan(rung="eager", record=(FRAME,))
    rows = TrialLog(folder / "search.dynadiag", target.text, [target.target])
    with warm(), Runner(target, HOOKS, Limits.default(60)) as runner:
        search = TrialSearch(runner, rows)
        failure = search.run(plan, "eager")
        assert failure.signature is not None
        search.reference = failure.signature
        yield search, plan, failure


@pytest.mark.parametrize(
    ("program", "first", "second"),
    [*_TWO_FAILURES[:4], *(pytest.param(*case, marks=_SLOW) for case in _TWO_FAILURES[4:])],
)
def test_the_second_failure_is_told(program: str, first: str, second: str, tmp_path: Path) -> None:
    with _failing_search(program, tmp_path) as (search, plan, failure):
        look_for_other_failures(search, plan, failure)
    assert failure.signature is not None
    assert first in failure.signature.message
    (other,) = search.other_failures
    assert second in other


_SIGNS = {  # what of a program shows that it has the failure
    "graph_break": "graph_break",
    "Data-dependent branching": " if ",
    "maxlen must be": "deque",
    "maxlen must be a constant": "deque",
    "killed by SIGABRT": "abort",
    "": "move_to_end",
    "AssertionError": "move_to_end",
}


@_SLOW
@pytest.mark.parametrize(("program", "first", "second"), _TWO_FAILURES)
def test_the_first_failure_is_kept_to_the_end(program: str, first: str, second: str, tmp_path: Path) -> None:
    with _failing_search(program, tmp_path) as (search, _, failure):
        assert failure.signature is not None
        reduced = reduce_program(search, MinifyResult("reduced", rung="eager"), failure.signature)
    assert reduced.reduced is not None
    assert first in reduced.reduced.message
    assert reduced.text.count("compile(") == 1
    assert _SIGNS[first] in reduced.text
    assert _SIGNS[second] not in reduced.text


_BREAK, _BRANCH = "    torch._dynamo.graph_break()\n", "    x = x + 1 if x.sum() > 0 else x\n"
_QUEUE = "    x = x * len(collections.deque([1], maxlen=x.shape[0] - 1))\n"
_HELPER = "    for name in ['a', 'b']:\n        x = branches(x)\n"


@pytest.mark.parametrize(
    ("body", "first", "second"),
    [
        (_BREAK + _BRANCH, "graph_break", "Data-dependent branching"),
        pytest.param(_BRANCH + _BREAK, "Data-dependent branching", "graph_break", marks=_SLOW),
        pytest.param(_QUEUE + _BREAK, "maxlen must be a constant", "graph_break", marks=_SLOW),
        pytest.param(_BREAK + _QUEUE, "graph_break", "maxlen must be a constant", marks=_SLOW),
        pytest.param(_HELPER + _BREAK, "Data-dependent branching", "graph_break", marks=_SLOW),
        pytest.param(_BREAK + _BREAK + _HELPER, "graph_break", "Data-dependent branching", marks=_SLOW),
        ("    return breaks(x) if len(x) < 5 else queues(x)\n", "graph_break", "maxlen must be a constant"),
    ],
)
def test_the_next_failure_of_the_same_function_is_told(body: str, first: str, second: str, tmp_path: Path) -> None:
    call = "whole(both, dynamic=True)"
    text = f"{_SHARED}def both(x):\n{body}    return x\nprint({call}(x), {call}(torch.ones(9)))\n"
    file = tmp_path / "program.py"
    file.write_text(text)
    target = Program.parse(str(file))
    rows = TrialLog(tmp_path / "search.dynadiag", target.text, [target.target])
    with warm(), Runner(target, HOOKS, Limits.default(60)) as runner:
        search = TrialSearch(runner, rows)
        with source_trials(search, text, ["import torch"], None) as trials:
            failure = trials.first_failure(text)
            assert failure is not None
            look_for_next_failure(trials, text)
    assert first in failure.message
    (other,) = search.other_failures
    assert second in other
    assert other.startswith("without `")


def test_another_failure_of_a_part_of_the_graph_is_told(tmp_path: Path) -> None:
    other = Outcome(Signature("exception", "KeyError", "mine"))
    with _failing_search("whole(breaks)(x)", tmp_path) as (search, _, failure):
        listener = _ReductionListener(search)
        for key, status, outcome in (("a", "same", failure), ("b", "pass", Outcome()), ("c", "different", other)):
            listener.on_event(CandidateTried(key, "operations", 3, status, outcome))
    assert search.other_failures == ("a part of the graph: KeyError: mine",)
