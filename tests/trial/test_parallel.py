"""Parallel trials: they do run at the same time, and one after another where they cannot."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dynadiag.bisection.bisector import HOOKS
from dynadiag.trial.plan import Plan, Switch
from dynadiag.trial.program import Program
from dynadiag.trial.runner import Runner
from dynadiag.trial.supervise import kill_session

pytestmark = [
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores"),
    pytest.mark.usefixtures("forked_interpreters"),
]
_without_gpu = pytest.mark.skipif(
    torch.cuda.is_available(), reason="compiling initializes CUDA there, and no fork is made at the graph"
)

# Waits without the module `time`: a program that reads the clock is run whole in each trial.
MEETS = """
import os, select
from pathlib import Path
import torch

def met():
    Path({folder!r}, str(os.getpid())).touch()
    for _ in range(6000):
        if len(list(Path({folder!r}).iterdir())) == 2:
            break
        select.select([], [], [], 0.01)
    else:
        raise SystemExit("the other trial did not come")

torch.compile(lambda x: x.sin())(torch.ones(3))
met()
"""
ALIKE = """
import torch
x = torch.ones(64)
torch.compile(lambda x: x.sin())(x)
"""
EAGER = [Plan("eager", caches=False), Plan("aot_eager", caches=False)]
OFF = Plan("inductor", caches=False, switches=(Switch("lowering", True, ()),))
IN_INDUCTOR = [Plan("inductor", caches=False), OFF]


def runner(tmp_path: Path, source: str) -> Runner:
    program = tmp_path / "program.py"
    program.write_text(source)
    return Runner(Program(str(program)), HOOKS, jobs=2)


@pytest.mark.parametrize(
    "plans",
    [
        pytest.param(EAGER, id="at the first call"),
        pytest.param(IN_INDUCTOR, id="at the graph", marks=_without_gpu),
    ],
)
def test_two_trials_run_at_the_same_time(tmp_path: Path, plans: list[Plan]) -> None:
    (meeting := tmp_path / "meeting").mkdir()
    with runner(tmp_path, MEETS.format(folder=str(meeting))) as trials:
        assert trials.start_forks(threads=1) is None
        assert trials.runs_in_parallel
        outcomes = trials.run_many(plans)
    assert all(outcome.passed for outcome in outcomes)
    assert {str(outcome.pid) for outcome in outcomes} == {file.name for file in meeting.iterdir()}


def test_programs_run_at_the_same_time_each_in_its_folder(tmp_path: Path) -> None:
    (meeting := tmp_path / "meeting").mkdir()
    places = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        file = tmp_path / name / "program.py"
        file.write_text(f"{MEETS.format(folder=str(meeting))}\nassert Path.cwd().name == {name!r}\n")
        places.append((Program(str(file)), file.parent))
    with runner(tmp_path, "") as trials:
        trials.start_forks(threads=1, checkpoint=False)
        outcomes = trials.run_programs(EAGER[0], places)
    assert all(outcome.passed for outcome in outcomes)
    assert {str(outcome.pid) for outcome in outcomes} == {file.name for file in meeting.iterdir()}


def test_each_outcome_is_that_of_its_plan(tmp_path: Path) -> None:
    source = """
import sys, torch
sys.exit(torch.compile(lambda x: torch.compiler.is_compiling() * 3 + int(x.shape[0] == 0))(torch.ones(1)))
"""
    with runner(tmp_path, source) as trials:
        trials.start_forks(threads=1)
        for _ in range(3):
            outcomes = trials.run_many([Plan("uncompiled", caches=False), Plan("eager", caches=False)])
            assert [outcome.exit_code for outcome in outcomes] == [0, 3]


@_without_gpu
def test_trials_from_two_servers_run_at_the_same_time(tmp_path: Path) -> None:
    (meeting := tmp_path / "meeting").mkdir()
    with runner(tmp_path, MEETS.format(folder=str(meeting))) as trials:
        trials.start_forks(threads=1)
        outcomes = trials.run_many([EAGER[0], OFF])
        assert trials._checkpoint is not None
        assert not trials._checkpoint.replicas
    assert all(outcome.passed for outcome in outcomes)
    assert {str(outcome.pid) for outcome in outcomes} == {file.name for file in meeting.iterdir()}


@_without_gpu
def test_trials_that_need_different_servers_run_one_after_another(tmp_path: Path) -> None:
    with runner(tmp_path, ALIKE) as trials:
        trials.start_forks(threads=1)
        assert all(outcome.passed for outcome in trials.run_many([OFF, replace(OFF, accuracy=True)]))
        assert trials._graph_checkpoint is not None
        assert trials._graph_checkpoint[1] is not None
        assert not trials._graph_checkpoint[1].replicas


@_without_gpu
def test_trials_of_another_runner_run_at_the_same_time(tmp_path: Path) -> None:
    (meeting := tmp_path / "meeting").mkdir()
    plan = Plan("triton", caches=False)
    with runner(tmp_path, MEETS.format(folder=str(meeting))) as trials:
        trials.start_forks(threads=1)
        outcomes = trials.run_many([plan, replace(plan, accuracy=True)])
    assert all(outcome.passed for outcome in outcomes)
    assert {str(outcome.pid) for outcome in outcomes} == {file.name for file in meeting.iterdir()}


def test_a_killed_replica_gives_no_outcome(tmp_path: Path) -> None:
    with runner(tmp_path, ALIKE) as trials:
        trials.start_forks(threads=1)
        trials.run_many(EAGER)
        assert trials._checkpoint is not None
        kill_session(trials._checkpoint.replicas[0].leader)
        assert all(outcome.passed for outcome in trials.run_many(EAGER))
