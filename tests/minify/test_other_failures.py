"""What else fails in a program is told, although its first failure ends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynadiag.bisection.bisector import HOOKS
from dynadiag.bisection.trial_log import TrialLog
from dynadiag.bisection.trial_search import TrialSearch
from dynadiag.minify.next_failure import look_for_next_failure
from dynadiag.minify.other_failures import FRAME, look_for_other_failures
from dynadiag.minify.source_trials import source_trials
from dynadiag.trial.plan import Plan
from dynadiag.trial.program import Program
from dynadiag.trial.runner import Runner
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


@pytest.mark.parametrize(
    ("program", "first", "second"),
    [
        ("whole(breaks)(x)\nwhole(branches)(x)", "graph_break", "Data-dependent branching"),
        pytest.param("whole(branches)(x)\nwhole(breaks)(x)", "Data-dependent branching", "graph_break", marks=_SLOW),
        ("compiled(queues, dynamic=True)(x)\nwhole(breaks)(x)", "maxlen must be a constant", "graph_break"),
        pytest.param(
            "whole(breaks)(x)\ncompiled(queues, dynamic=True)(x)",
            "graph_break",
            "maxlen must be a constant",
            marks=_SLOW,
        ),
        pytest.param(
            "whole(Model(Model(breaks)))(x)\nwhole(branches)(x)", "graph_break", "Data-dependent branching", marks=_SLOW
        ),
        pytest.param(
            "compiled(Model(queues), dynamic=True)(x)\nwhole(branches)(x)",
            "maxlen must be",
            "Data-dependent branching",
            marks=_SLOW,
        ),
        ("compiled(aborts)(x)\nwhole(breaks)(x)", "killed by SIGABRT", "graph_break"),
        pytest.param("whole(breaks)(x)\ncompiled(aborts)(x)", "graph_break", "killed by SIGABRT", marks=_SLOW),
        ("checked(x)\nwhole(breaks)(x)", "", "graph_break"),
        pytest.param("whole(breaks)(x)\nchecked(x)", "graph_break", "AssertionError", marks=_SLOW),
    ],
)
def test_the_second_failure_is_told(program: str, first: str, second: str, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(_SHARED + program + "\n")
    target, plan = Program.parse(str(file)), Plan(rung="eager", record=(FRAME,))
    rows = TrialLog(tmp_path / "search.dynadiag", target.text, [target.target])
    with warm(), Runner(target, HOOKS, Limits.default(60)) as runner:
        search = TrialSearch(runner, rows)
        failure = search.run(plan, "eager")
        assert failure.signature is not None
        assert first in failure.signature.message
        search.reference = failure.signature
        look_for_other_failures(search, plan, failure)
    (other,) = search.other_failures
    assert second in other


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
