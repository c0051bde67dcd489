"""`dynadiag compare` as a user runs it, on programs that compile in a moment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dynadiag

DYNADIAG = Path(sys.executable).with_name("dynadiag")

PROGRAM = """
import torch
from torch.utils.benchmark import Timer

def work(x):
    return (x @ x).relu().sum()

def make():
    torch.manual_seed(0)
    return work, (torch.randn(192, 192),)

def broken():
    def fn(x):
        y = x.sin()
        print("between", flush=True)
        return y.cos()
    return fn, (torch.randn(8),)

def growing():
    sizes = iter(range(4, 100000))
    def fn(x):
        return x.sin()
    class Growing(torch.nn.Module):
        def forward(self, x):
            return x.sin()
    return fn, ([torch.randn(4), torch.randn(5)],)

def plain():
    return (lambda a, b: a + b), (1, 2)

def raises():
    def fn(x):
        raise ValueError("out of cheese")
    return fn, (torch.randn(8),)

def hungry():
    def fn(x):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 TiB")
    return fn, (torch.randn(8),)

def crashes():
    import os, signal
    def fn(x):
        if torch.compiler.is_compiling():
            return x.sin()
        os.kill(os.getpid(), signal.SIGSEGV)
    return fn, (torch.randn(8),)

def module():
    torch.manual_seed(0)
    return torch.nn.Linear(8, 8), (torch.randn(4, 8),)

def no_call():
    return work

def torn():
    import os, signal, threading
    calls = 0
    def fn(x):
        nonlocal calls
        calls += 1
        if calls == 60:
            os.kill(COMMAND, signal.SIGINT)
        return x.sin()
    return fn, (torch.randn(8),)
"""


def compared(tmp_path: Path, name: str, *options: str, code: int = 0) -> tuple[dict[str, Any], str]:
    """The document and the text of one comparison."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    document = tmp_path / "out.json"
    ended = run([*options, "--json", str(document), "-o", str(tmp_path / "out"), f"{program}:{name}"], tmp_path)
    assert ended.returncode == code, ended.stderr
    assert "Traceback" not in ended.stderr
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


def row(document: dict[str, Any], variant: str) -> dict[str, Any]:
    (found,) = [item for item in document["rows"] if item["variant"] == variant]
    return dict(found)


def test_a_function_is_timed_and_its_recordings_are_kept(tmp_path: Path) -> None:
    document, text = compared(tmp_path, "make", "--modes", "eager", "--backends", "aot_eager", "--repeat", "2")
    assert [item["variant"] for item in document["rows"]] == ["eager", "aot_eager"]
    eager, compiled = row(document, "eager"), row(document, "aot_eager")
    assert eager["against_eager"] is None
    assert (eager["graphs"], compiled["graphs"], compiled["breaks"], compiled["recompiles"]) == (0, 1, 0, 0)
    assert compiled["first_call"] > compiled["warm_call"]["median"] > 0
    parts = compiled["compile_seconds"]
    assert parts["total"] == pytest.approx(
        sum(parts[name] for name in ("dynamo", "aot", "inductor", "codegen", "other"))
    )
    assert 0 < parts["total"] < sum(compiled["first_calls"])
    assert all(item["rounds"] == 2 for item in document["rows"])
    assert all(item["memory"]["first_calls"]["host"] >= 0 for item in document["rows"])
    with dynadiag.open(compiled["recording"]) as recording:
        assert recording.run.exit_code == 0
        assert recording.run.complete
    for heading in ("first call", "warm call", "spread", "against eager", "pays after", "graphs", "Dynamo"):
        assert heading in text


def test_breaks_are_counted_and_what_is_printed_goes_to_the_recording(tmp_path: Path) -> None:
    document, text = compared(tmp_path, "broken", "--modes", "eager", "--backends", "eager", "--repeat", "1")
    compiled = document["rows"][1]
    assert (compiled["graphs"], compiled["breaks"]) == (2, 1)
    assert "between" not in text
    with dynadiag.open(compiled["recording"]) as recording:
        (event,) = recording.events("dynadiag_output")
        assert "between" in recording.payload(event.index)


def test_a_variant_that_fails_is_a_row_and_the_others_run(tmp_path: Path) -> None:
    document, text = compared(tmp_path, "make", "--modes", "eager", "--backends", "no_such,eager", "--repeat", "1")
    failed = row(document, "no_such")
    assert failed["failure"]["kind"] == "exception"
    assert failed["failure"]["type"].endswith("InvalidBackend")
    assert (failed["warm_call"], failed["against_eager"]) == (None, None)
    assert "no_such: " in text
    assert document["rows"][2]["warm_call"]["median"] > 0


def test_out_of_memory_and_a_program_that_always_raises(tmp_path: Path) -> None:
    document, text = compared(tmp_path, "hungry", "--modes", "eager", code=1)
    assert document["rows"][0]["failure"]["type"] == "torch.OutOfMemoryError"
    assert "Tried to allocate" in text


def test_a_crash_is_a_row(tmp_path: Path) -> None:
    document, text = compared(tmp_path, "crashes", "--modes", "eager", "--backends", "eager", "--repeat", "1")
    crashed, compiled = document["rows"]
    assert (crashed["failure"]["kind"], crashed["failure"]["type"]) == ("signal", "SIGSEGV")
    assert compiled["failure"] is None
    assert compiled["against_eager"] is None
    assert "killed by SIGSEGV" in text


def test_a_call_without_tensors_is_timed_and_it_is_said_that_nothing_was_compiled(tmp_path: Path) -> None:
    document, text = compared(tmp_path, "plain", "--modes", "eager", "--backends", "eager", "--repeat", "1")
    compiled = document["rows"][1]
    assert compiled["graphs"] == 0
    assert compiled["kernels"] is None
    assert compiled["warm_call"]["median"] > 0
    assert "ran uncompiled" in text


def test_a_training_step_needs_something_to_train(tmp_path: Path) -> None:
    document, _ = compared(tmp_path, "make", "--train", "--modes", "eager", code=1)
    assert "requires a gradient" in document["rows"][0]["failure"]["message"]


def test_forward_and_backward_under_autocast(tmp_path: Path) -> None:
    document, _ = compared(
        tmp_path, "module", "--train", "--amp", "bf16", "--modes", "eager", "--backends", "aot_eager", "--repeat", "1"
    )
    compiled = row(document, "aot_eager, bfloat16")
    assert compiled["failure"] is None
    assert (compiled["step"], compiled["amp"]) == ("train", "bfloat16")
    with dynadiag.open(compiled["recording"]) as recording:
        stages = {graph.stage: graph for graph in recording.graphs()}
        assert "backward" in stages
        assert "bfloat16" in recording.payload(stages["forward"].event) or "bf16" in recording.payload(
            stages["forward"].event
        )


def test_an_interrupted_comparison_keeps_what_it_has(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("COMMAND", "os.getppid()"))
    ended = run(
        ["--modes", "eager", "--repeat", "1000000", "--json", str(tmp_path / "o.json"), f"{program}:torn"], tmp_path
    )
    assert ended.returncode == 130, ended.stderr
    document = json.loads((tmp_path / "o.json").read_text())
    assert document["interrupted"]
    assert len(document["rows"][0]["first_calls"]) == 3
    assert "interrupted" in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["{program}"], "NAME a function without arguments"),
        (["{program}:nothing"], "no function nothing"),
        (["{program}:no_call"], "must return (fn, args)"),
        (["nowhere.py:make"], "nowhere.py: no such file"),
        (["--modes", "fast", "{program}:make"], "no such mode: fast"),
        (["--amp", "int8", "{program}:make"], "no such dtype: int8"),
        (["--also", "nothing", "--modes", "as-written", "{program}:make"], "no function nothing"),
        (["--repeat", "0", "{program}:make"], "1 or more"),
        (["-o", "{program}", "{program}:make"], "is a file"),
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
    program.write_text(PROGRAM)
    kept.parent.mkdir()
    kept.write_text("mine")
    refused = run(["-o", str(kept.parent), f"{program}:make"], tmp_path)
    assert refused.returncode == 2
    assert "--force" in refused.stderr
    assert run(["-o", str(kept.parent), "--force", f"{program}:no_call"], tmp_path).returncode == 2
    assert kept.read_text() == "mine"
