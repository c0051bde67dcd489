"""`dynadiag compare` as a user runs it. Each variant loads torch, so that few comparisons show many things."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dynadiag
from dynadiag.explanation.explanation import explain
from dynadiag.recording.opening import COMPARISON_NAME
from dynadiag.render.report import explanation_text

pytestmark = pytest.mark.usefixtures("forked_interpreters")

DYNADIAG = Path(sys.executable).with_name("dynadiag")

PROGRAM = """
import os, signal
import torch

def broken():
    def fn(x):
        y = x.sin()
        print("between", flush=True)
        return y.cos()
    return fn, (torch.randn(8),)

def plain():
    return (lambda a, b: a + b), (1, 2)

def crashes():
    def fn(x):
        if torch.compiler.is_compiling():
            return x.sin()
        os.kill(os.getpid(), signal.SIGSEGV)
    return fn, (torch.randn(8),)

def hungry():
    def fn(x):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 TiB")
    return fn, (torch.randn(8),)

def hungry_uncompiled():
    def fn(x):
        if torch.compiler.is_compiling():
            return x.sin()
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 TiB")
    return fn, (torch.randn(8),)

def interrupted_while_it_compiles():
    def backend(gm, inputs):
        os.kill(os.getppid(), signal.SIGINT)
        signal.pause()
    torch._dynamo.register_backend(backend, "endless")
    return (lambda x: x.sin()), (torch.randn(8),)

def compiles_itself():
    return torch.compile(torch.nn.Linear(8, 8), backend="aot_eager"), (torch.randn(4, 8),)

def interrupts():
    calls = 0
    def fn(x):
        nonlocal calls
        calls += 1
        if calls == 60:
            os.kill(os.getppid(), signal.SIGINT)
        return x.sin()
    return fn, (torch.randn(8),)

def of_many_lengths():
    return (lambda x: x.sin() * 2), (torch.randn(4),)

def lengths():
    return [(torch.randn(length),) for length in (5, 6, 7)]

def other_width():
    return [(torch.randn(4, 5),)]

def no_call():
    return "this"

def step(a, b=1):
    return a * b
"""


def compared(tmp_path: Path, name: str, *options: str, code: int = 0) -> tuple[dict[str, Any], str]:
    """The document and the text of one comparison."""
    program, document = tmp_path / "program.py", tmp_path / "out.json"
    program.write_text(PROGRAM)
    ended = run([*options, "--json", str(document), "-o", str(tmp_path / "out"), f"{program}:{name}"], tmp_path)
    assert ended.returncode == code, ended.stderr
    assert "Traceback" not in ended.stderr
    assert (tmp_path / "out" / COMPARISON_NAME).read_bytes() == document.read_bytes()  # the browser shows it
    return json.loads(document.read_text()), ended.stdout


def run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(DYNADIAG), "compare", *arguments],
        cwd=folder,
        env={**os.environ, "XDG_STATE_HOME": str(folder / "state")},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_variants_are_timed_and_recorded_and_one_that_fails_is_a_row(tmp_path: Path) -> None:
    document, text = compared(tmp_path, "broken", "--modes", "eager", "--backends", "no_such,eager", "--repeat", "2")
    eager, failed, compiled = document["rows"]
    assert [row["variant"] for row in document["rows"]] == ["eager", "backend no_such", "backend eager"]
    assert failed["failure"]["type"].endswith("InvalidBackend")
    assert (failed["warm_call"], failed["against_eager"]) == (None, None)
    assert "backend no_such: " in text
    assert eager["against_eager"] is None
    assert set(compiled["against_eager"]) == {"ratio", "noise", "pays_after"}
    assert (eager["graphs"], compiled["graphs"], compiled["breaks"], compiled["recompiles"]) == (0, 2, 1, 0)
    assert compiled["first_call"] > compiled["warm_call"]["median"] > 0
    assert (eager["rounds"], compiled["rounds"]) == (2, 2)
    assert compiled["kernels"] is None  # this backend generates none
    check_parts(compiled)
    check_costs(compiled, tmp_path / "program.py")
    check_recording(compiled["recording"])
    assert "between" not in text
    assert "what the breaks cost in a warm call: backend eager" in text


def check_parts(row: dict[str, Any]) -> None:
    """The parts of the compile time add up, and are not longer than the calls in which it was spent."""
    parts = dict(row["compile_seconds"])
    total = parts.pop("total")
    assert total == pytest.approx(sum(parts.values()))
    assert 0 < total < sum(row["first_calls"])


def check_costs(row: dict[str, Any], program: Path) -> None:
    """The one break has its cost, and both pieces of code run in each call."""
    (cost,) = row["break_costs"]
    assert program.read_text().splitlines()[cost["line"] - 1].strip() == 'print("between", flush=True)'
    assert (cost["graphs"], cost["entries"], cost["operators"]) == (1, 1, 0)
    assert 0 < cost["guard"] < cost["seconds"] < row["profiled_call"]["seconds"]
    assert [(entry["calls"], entry["run_again"]) for entry in row["entries"]] == [(1, True), (1, True)]
    assert all(entry["guard_seconds"] > 0 < entry["guards"] for entry in row["entries"])


def check_recording(path: str) -> None:
    """It ends well, and holds what the program printed."""
    with dynadiag.open(path) as recording:
        assert (recording.run.exit_code, recording.run.complete) == (0, True)
        (event,) = recording.events("dynadiag_output")
        assert "between" in recording.payload(event.index)
        explanation = explain(recording)
    assert [item.cost.call is not None for item in explanation.findings] == [True]
    assert " = costs: " in explanation_text(explanation)
    assert "warm: compiled code in" in explanation_text(explanation)


def test_a_crash_is_a_row_and_what_has_nothing_to_stand_against_is_timed_all_the_same(tmp_path: Path) -> None:
    document, text = compared(tmp_path, "crashes", "--modes", "eager", "--backends", "eager", "--repeat", "1")
    crashed, compiled = document["rows"]
    assert (crashed["failure"]["kind"], crashed["failure"]["type"]) == ("signal", "SIGSEGV")
    assert (compiled["failure"], compiled["against_eager"]) == (None, None)
    assert "killed by SIGSEGV" in text


def test_a_call_without_tensors_is_timed_and_it_is_said_that_nothing_was_compiled(tmp_path: Path) -> None:
    document, text = compared(tmp_path, "plain", "--modes", "eager", "--backends", "eager", "--repeat", "1")
    compiled = document["rows"][1]
    assert (compiled["graphs"], compiled["kernels"]) == (0, None)
    assert compiled["warm_call"]["median"] > 0
    assert "ran uncompiled" in text
    assert "uncompiled variant of a comparison" not in text
    told = []
    for row in document["rows"]:
        with dynadiag.open(row["recording"]) as recording:
            told.append(explanation_text(explain(recording)))
    assert ["uncompiled variant of a comparison" in each for each in told] == [True, False]


def test_uncompiled_means_all_of_it_and_as_written_what_the_function_compiles_itself(tmp_path: Path) -> None:
    options = ("--train", "--amp", "bf16", "--modes", "as-written", "--repeat", "1")
    document, _ = compared(tmp_path, "compiles_itself", *options)
    eager, written = document["rows"]
    assert (eager["graphs"], written["graphs"]) == (0, 1)
    assert (written["variant"], written["step"]) == ("as-written, bfloat16", "train")
    with dynadiag.open(written["recording"]) as recording:
        texts = {graph.stage: recording.payload(graph.event) for graph in recording.graphs()}
    assert "bf16" in texts["forward"]
    assert "backward" in texts


def test_recompiles_over_a_list_of_inputs(tmp_path: Path) -> None:
    options = ("--modes", "eager", "--backends", "eager", "--repeat", "1", "--inputs", "lengths")
    document, text = compared(tmp_path, "of_many_lengths", *options, "--dynamic", "false,true")
    static, dynamic = document["rows"][1:]
    assert [row["recompiles"] for row in (static, dynamic)] == [3, 0]
    assert [len(row["inputs"]) for row in document["rows"]] == [3, 3, 3]
    assert "3 calls with other inputs" in " ".join(text.split())


def test_a_failure_with_other_inputs_is_told_apart_from_one_of_what_was_measured(tmp_path: Path) -> None:
    options = ("--modes", "eager", "--repeat", "1", "--inputs", "other_width")
    _document, text = compared(tmp_path, "compiles_itself", *options)
    assert "eager: after it was measured: RuntimeError: mat1 and mat2" in " ".join(text.split())


def test_out_of_memory_in_every_variant_is_exit_code_1(tmp_path: Path) -> None:
    document, text = compared(tmp_path, "hungry", "--modes", "eager", code=1)
    assert document["rows"][0]["failure"]["type"].endswith("OutOfMemoryError")
    assert "Tried to allocate" in text


def test_out_of_memory_in_one_variant_is_its_row_and_the_others_run(tmp_path: Path) -> None:
    options = ("--modes", "eager", "--backends", "eager", "--repeat", "1")
    document, text = compared(tmp_path, "hungry_uncompiled", *options)
    hungry, compiled = document["rows"]
    assert hungry["failure"]["type"].endswith("OutOfMemoryError")
    assert (compiled["failure"], compiled["warm_call"] is None) == (None, False)
    assert "eager: torch.OutOfMemoryError: CUDA out of memory" in text


def test_an_interruption_while_one_compiles_keeps_the_rows_of_those_that_are_ready(tmp_path: Path) -> None:
    options = ("--modes", "eager", "--backends", "eager,endless,aot_eager")
    document, text = compared(tmp_path, "interrupted_while_it_compiles", *options, code=130)
    eager, ready, endless, never = document["rows"]
    assert [row["rounds"] for row in (eager, ready)] == [1, 1]
    assert (eager["failure"], ready["failure"], ready["graphs"]) == (None, None, 1)
    assert ready["against_eager"] is not None
    assert {row["failure"]["kind"] for row in (endless, never)} == {"interrupted"}
    assert "interrupted after 1 round" in text


def test_an_interrupted_comparison_keeps_what_it_has(tmp_path: Path) -> None:
    document, text = compared(tmp_path, "interrupts", "--modes", "eager", "--repeat", "1000000", code=130)
    assert document["interrupted"]
    assert len(document["rows"][0]["first_calls"]) == 3
    assert "interrupted" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["{program}"], "NAME a function without arguments"),
        (["{program}:no_call"], "must return (fn, args)"),
        (["{program}:step"], "step needs arguments (a)"),
        (["--also", "absent", "--modes", "as-written", "{program}:plain"], "no function absent"),
        (["nowhere.py:make"], "nowhere.py: no such file"),
        (["--modes", "fast", "{program}:plain"], "no such mode: fast"),
        (["--amp", "int8", "{program}:plain"], "no such dtype: int8"),
        (["--repeat", "0", "{program}:plain"], "1 or more"),
        (["-o", "{program}", "{program}:plain"], "is a file"),
        ([], "name a program"),
    ],
)
def test_bad_usage_is_one_line_and_leaves_nothing(tmp_path: Path, arguments: list[str], says: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ended = run([argument.format(program=program) for argument in arguments], tmp_path)
    assert ended.returncode == 2
    assert says in ended.stderr.splitlines()[-1]
    assert ended.stderr.splitlines()[-1].startswith("dynadiag: ")
    assert not list(tmp_path.rglob("*.dynadiag"))


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    program, kept = tmp_path / "program.py", tmp_path / "out" / "kept.dynadiag"
    program.write_text("import torch_is_not_needed_for_this\n")
    kept.parent.mkdir()
    kept.write_text("mine")
    refused = run(["-o", str(kept.parent), f"{program}:make"], tmp_path)
    assert refused.returncode == 2
    assert "--force" in refused.stderr
    assert run(["-o", str(kept.parent), "--force", f"{program}:make"], tmp_path).returncode == 2
    assert kept.read_text() == "mine"
