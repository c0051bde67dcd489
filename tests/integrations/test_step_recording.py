"""Budgets of recorded steps, without any trainer."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import pytest
import torch
from torch.testing._internal.distributed.fake_pg import FakeStore

import dynadiag
from dynadiag.integrations.step_recording import StepRecording, StepsResult


def trained(path: Path, **budgets: int) -> list[StepsResult | None]:
    """What each of six steps says, of which the later ones recompile."""
    torch.compiler.reset()
    compiled = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    steps = StepRecording(path, 1, 6, budgets)
    told = []
    for step in range(1, 7):
        steps.before_step(step)
        compiled(torch.ones(max(step, 2)))
        told.append(steps.after_step(step))
    return told


def test_too_many_recompiles_end_the_recording_early(tmp_path: Path) -> None:
    *before, result = trained(tmp_path / "run.dynadiag", max_recompiles=1)[:4]
    assert before == [None, None, None]
    assert result is not None
    assert any("recompiles" in sentence for sentence in result.over)


@pytest.mark.parametrize("budgets", [{}, {"max_recompiles": 9}])
def test_within_budgets_all_steps_are_recorded(tmp_path: Path, budgets: dict[str, int]) -> None:
    *before, result = trained(tmp_path / "run.dynadiag", **budgets)
    assert before == [None] * 5
    assert result is not None
    assert result.over == ()


def begun(path: Path, last: int = 9) -> StepRecording:
    """A training whose first step has begun and compiled something."""
    torch.compiler.reset()
    steps = StepRecording(path, 1, last, {})
    steps.begin_training(force=False)
    steps.before_step(1)
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    return steps


def test_a_second_training_is_not_refused_for_the_recording_of_the_first(tmp_path: Path) -> None:
    steps = begun(tmp_path / "run.dynadiag", last=1)
    assert steps.after_step(1) is not None
    steps.begin_training(force=False)
    steps.before_step(1)
    assert steps.after_step(1) is None


def test_a_training_after_one_that_raised_ends_its_recording(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    steps = begun(tmp_path / "run.dynadiag")
    with caplog.at_level(logging.INFO, "dynadiag"):
        steps.begin_training(force=False)  # no callback heard of the exception
    assert "step 1: All that was compiled is one graph." in caplog.text
    with dynadiag.record(tmp_path / "next.dynadiag"):
        pass


def test_another_training_of_the_thread_is_recorded(tmp_path: Path) -> None:
    outer = begun(tmp_path / "outer.dynadiag")
    inner = begun(tmp_path / "inner.dynadiag")
    assert [each.metrics["dynadiag/graphs"] for step in (inner, outer) if (each := step.finish())] == [1, 1]


def test_what_ended_the_training_is_in_the_recording(tmp_path: Path) -> None:
    steps = begun(tmp_path / "run.dynadiag")
    try:
        raise KeyError("mine")
    except KeyError as error:
        steps.finish(error)
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        assert "The program raised KeyError at test_step_recording.py" in str(recording.report())


def test_what_ended_the_program_is_in_the_recording(tmp_path: Path) -> None:
    program = """
        from dynadiag.integrations.step_recording import StepRecording
        steps = StepRecording("run.dynadiag", 1, 9, {})
        steps.begin_training(force=False)
        steps.before_step(1)
        raise KeyError("mine")
    """
    told = subprocess.run([sys.executable, "-c", dedent(program)], cwd=tmp_path, capture_output=True, text=True)
    assert told.stderr.endswith("KeyError: 'mine'\n")
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        assert "The program raised KeyError" in repr(recording.report())


def test_a_budget_that_cannot_be_used_is_named_as_the_argument(tmp_path: Path) -> None:
    for budgets, said in (
        ({"max_brakes": 0}, r"max_brakes is not known: try max_breaks$"),
        ({"max_graphs": -1}, r"max_graphs is -1: give a whole number, 0 or more$"),
        ({"breaks_at_most": 0}, r"breaks_at_most is not known: .*max_compile_seconds"),
    ):
        with pytest.raises(dynadiag.DynadiagError, match=said):
            StepRecording(tmp_path / "run.dynadiag", 1, 2, budgets)


def test_steps_that_were_not_reached_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    steps = StepRecording(tmp_path / "run.dynadiag", 5, 6, {})
    steps.before_step(1)
    steps.after_step(1)
    assert steps.end_training() is None
    assert "nothing is recorded: training did not run steps 5 to 6" in caplog.text


@pytest.mark.parametrize(("name", "said"), [(".", "is a folder"), ("absent/run.dynadiag", "there is no folder")])
def test_a_path_that_cannot_be_written_is_refused_before_training(name: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(dynadiag.DynadiagError, match=said):
        StepRecording(tmp_path / name, 1, 2, {}).begin_training(force=True)


@contextmanager
def process_group(rank: int) -> Iterator[None]:
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=2)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def test_a_rank_that_only_the_process_group_knows_has_a_file_of_its_own(tmp_path: Path) -> None:
    steps = StepRecording(tmp_path / "run.dynadiag", 1, 1, {})  # before the trainer makes its process group
    with process_group(1):
        steps.begin_training(force=False)
        steps.before_step(1)
        steps.after_step(1)
    assert [path.name for path in tmp_path.iterdir()] == ["run-rank1.dynadiag"]
