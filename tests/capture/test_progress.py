"""The lines on what is being compiled, and the options that let a program end, or compile, sooner."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynadiag.capture.compile_progress import CompileProgress
from tests.capture.runs import Bench

pytestmark = pytest.mark.usefixtures("forked_interpreters")

BEGINS = 'V1126 20:17:50.3 1 dynadiag:0] {"dynadiag_frame": {"file": "p.py", "line": 3, "function": "%s"}, %s}\n'
ENDS = 'V1126 20:17:51.3 1 torch/_dynamo/utils.py:1] {"compilation_metrics": {"co_name": "f"}, %s}\n'
FIRST, SECOND = '"frame_id": 0, "frame_compile_id": 0', '"frame_id": 1, "frame_compile_id": 0'
WAITS = """
import threading

import torch

torch.compile(lambda x: x.sin() + 1)(torch.ones(3))
print("compiled", flush=True)
threading.Event().wait()
"""


def test_a_line_every_ten_seconds_while_something_is_compiled(tmp_path: Path) -> None:
    journal, lines = tmp_path / "run.log", list[str]()
    progress = CompileProgress(journal, lines.append)
    progress(10.0)  # there is no journal yet
    journal.write_text(BEGINS % ("f", FIRST))
    progress(12.0)  # too soon
    progress(21.0)
    with journal.open("a") as more:
        more.write(ENDS % FIRST + BEGINS % ("torch_dynamo_resume_in_g_at_7", SECOND) + BEGINS[:20])
    progress(32.0)
    with journal.open("a") as more:
        more.write(BEGINS[20:] % ("h", FIRST) + ENDS % FIRST + ENDS % SECOND + "\xff no event\n")
    progress(43.0)
    assert lines == ["21 s: 0 compiled; compiling f", "32 s: 1 compiled; compiling g"]


def test_a_program_is_stopped_after_so_many_seconds(tmp_path: Path) -> None:
    run = Bench(tmp_path, WAITS).recorded(options=("--seconds", "0.1"))  # it never ends by itself
    assert (run.code, run.document["exit_code"]) == (0, 0)
    assert any("--seconds 0.1" in note for note in run.document["notes"])


def test_without_code_generation_there_are_graphs_and_no_kernels(tmp_path: Path) -> None:
    run = Bench(tmp_path, WAITS.replace("threading.Event().wait()", "")).recorded(options=("--no-codegen",))
    assert (run.document["graph_count"], run.document["kernels"]) == (1, [])
    assert {"dynamo"} <= {graph["stage"] for graph in run.document["graphs"]}
    assert any("--no-codegen" in note for note in run.document["notes"])


def test_the_warm_up_is_so_many_calls_of_the_first_function(tmp_path: Path) -> None:
    program = """
import torch


@torch.compile(backend="eager")
def inner(x):
    return x + 1


@torch.compile(backend="eager")
def outer(x):
    torch._dynamo.graph_break()
    return inner(x) * 2


for size in (3, 3, 3, 5):
    outer(torch.ones(size))
"""
    run = Bench(tmp_path, program).recorded(options=("--after", "3"))
    assert "after the warm-up of 3 calls" in run.out
    assert {each["compile_id"].partition("/")[2] for each in run.document["compiles"]} == {"1"}
