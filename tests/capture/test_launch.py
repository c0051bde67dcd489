"""Programs run for their recording: interrupted, ended early, of several processes, with caches of their own."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dynadiag.recording.opening import open_recording
from tests.capture.runs import DYNADIAG, LIMIT, Bench

LOOP = """
import sys, torch

def step(x):
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos()

compiled = torch.compile(step, backend="eager")
try:
    for number in range(10**9):
        compiled(torch.ones(3))
        if number < 5:
            print("step", number, flush=True)
except Exception:
    print("never")
finally:
    print("saved", flush=True)
"""

WAITS = "print('step', number, flush=True)\n        if number == 4:\n            __import__('signal').pause()"


@pytest.mark.usefixtures("forked_interpreters")
def test_ended_after_so_many_calls(tmp_path: Path) -> None:
    run = Bench(tmp_path, LOOP).recorded(options=("--stop-after", "3"))
    assert run.out.startswith("step 0\nstep 1\nstep 2\nsaved\n")
    assert "never" not in run.out
    assert (run.code, run.document["exit_code"], len(run.document["breaks"])) == (0, 0, 1)
    assert any("--stop-after 3" in note for note in run.document["notes"])


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell starts what it puts into the background with SIGINT ignored, and children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
def test_interrupted_once_it_is_explained(tmp_path: Path) -> None:
    # While it compiles or checks guards torch may swallow a KeyboardInterrupt, recorded or not: so it waits instead.
    bench = Bench(tmp_path, LOOP.replace('print("step", number, flush=True)', WAITS))
    bench._lay_out()
    command = [*DYNADIAG, "explain", "-o", str(bench.out / "run.dynadiag"), "program.py"]
    process = subprocess.Popen(
        command, cwd=bench.work, env=bench.environment(), stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    while "step 4" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    assert out.startswith("saved\n")
    assert "break[GB0025]" in out
    with open_recording(bench.out / "run.dynadiag") as recording:
        assert recording.run.exit_code == -signal.SIGINT
        assert len(recording.breaks()) == 1


RANKS = """
import os, torch

def step(x):
    y = x.sin()
    torch._dynamo.graph_break()
    return y * int(os.environ["RANK"])

if __name__ == "__main__":
    torch.distributed.init_process_group("gloo")
    torch.compile(step, backend="eager")(torch.ones(3))
    torch.distributed.destroy_process_group()
"""
TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]


@pytest.mark.slow
def test_a_recording_for_each_rank(tmp_path: Path) -> None:
    bench = Bench(tmp_path, RANKS)
    bench._lay_out()
    output = bench.out / "run.dynadiag"
    command = [*DYNADIAG, "explain", "--json", str(bench.out / "run.json"), "-o", str(output), *TORCHRUN, "program.py"]
    done = subprocess.run(command, cwd=bench.work, env=bench.environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads((bench.out / "run.json").read_text())
    assert [len(other["breaks"]) for other in document["ranks"]] == [1, 1]
    assert sorted(path.name for path in bench.out.glob("*.dynadiag")) == [
        "run-rank0.dynadiag",
        "run-rank1.dynadiag",
        "run.dynadiag",
    ]
    assert done.stdout.startswith("2 ranks alike. Not one graph: 1 graph break")


@pytest.mark.slow
def test_processes_that_somebody_else_starts_record_themselves(tmp_path: Path) -> None:
    bench = Bench(tmp_path, RANKS)
    bench._lay_out()
    environment = bench.environment() | {"DYNADIAG_RECORD": str(bench.out / "records")}
    subprocess.run([sys.executable, *TORCHRUN, "program.py"], cwd=bench.work, env=environment, check=True)
    found = {}
    for path in (bench.out / "records").glob("*.dynadiag"):
        with open_recording(path) as recording:
            if recording.breaks():
                found[recording.run.rank] = recording.run.complete
    assert found == {0: True, 1: True}


@pytest.mark.usefixtures("forked_interpreters")
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_without_source_nothing_of_it_is_in_the_recording(backend: str, tmp_path: Path) -> None:
    program = """
        import torch
        def secret_step(x, secret_argument):
            secret_local = x.sin() * 12345.678
            torch._dynamo.graph_break()
            for secret_index in range(3):
                print("a secret word", secret_index, end="")
            assert secret_local.sum() < 1e9, "a secret assertion"
            return secret_local * secret_argument + x.shape[0]
        compiled = torch.compile(secret_step, backend=BACKEND)
        for size in (2, 3):
            compiled(torch.ones(size, requires_grad=True), 2).sum().backward()
        try:
            torch.compile(lambda x: secret_step(x, 1), fullgraph=True, backend=BACKEND)(torch.ones(2))
        except Exception as error:
            print(type(error))
        """
    bench = Bench(tmp_path, program.replace("BACKEND", repr(backend)))
    run = bench.recorded(options=("--no-source",))
    assert run.code == 0, run.err
    assert run.document["breaks"]
    with open_recording(bench.out / "run.dynadiag") as recording:
        raw = b"".join(recording.raw()).decode(errors="replace")
    for line in (bench.work / "program.py").read_text().splitlines():
        text = line.strip()
        if len(text) > 8 and text != "torch._dynamo.graph_break()":
            for spelling in (text, json.dumps(text)[1:-1], repr(text)[1:-1]):
                assert spelling not in raw
    assert "secret assertion" not in raw


@pytest.mark.slow
def test_a_size_limit_is_kept_and_said(tmp_path: Path) -> None:
    bench = Bench(tmp_path, LOOP.replace("10**9", "2"))
    run = bench.recorded(options=("--limit", "0.00002"))
    assert (run.code, run.document["exit_code"]) == (0, 0)
    assert any("size limit" in note for note in run.document["notes"])
    with open_recording(bench.out / "run.dynadiag") as recording:
        assert sum(len(piece) for piece in recording.raw()) < 25_000


@pytest.mark.slow
def test_fresh_caches_are_gone_afterwards(tmp_path: Path) -> None:
    program = """
        import os, torch
        torch.compile(lambda x: x.sin() + 1)(torch.ones(8))
        print(os.listdir(os.environ["TORCHINDUCTOR_CACHE_DIR"]) != [], os.environ["TORCHINDUCTOR_CACHE_DIR"])
        """
    bench = Bench(tmp_path, program)
    for _ in range(2):
        run = bench.recorded(options=("--fresh",))
        used, folder = run.out.split("\n")[0].split()
        assert used == "True"
        assert not Path(folder).exists()
        left = [name for name in run.files if "torchinductor_" in name and "." in name]
        assert all("/precompiled_headers/" in name for name in left)  # the C++ compiler's: torch keeps them elsewhere
        assert [entry["cache"] for entry in run.document["compiles"]] == ["miss"]


@pytest.mark.usefixtures("forked_interpreters")
@pytest.mark.parametrize(
    ("target", "why"),
    [("program.py:missing", "no function missing"), ("program.py:wrong", "must return"), ("nowhere.mod:f", "import")],
)
def test_a_function_that_cannot_be_called_is_a_usage_error(target: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("def wrong(): return 3\n")
    command = [*DYNADIAG, "explain", "-o", str(tmp_path / "run.dynadiag"), target]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert why in done.stderr
    assert not (tmp_path / "run.dynadiag").exists()


@pytest.mark.slow
def test_a_function_is_compiled_and_called(tmp_path: Path) -> None:
    program = """
        import torch
        def made():
            return torch.nn.Linear(3, 3), (torch.ones(2, 3),)
        """
    bench = Bench(tmp_path, program)
    bench._lay_out()
    command = [*DYNADIAG, "explain", "--json", "-", "program.py:made"]
    done = subprocess.run(command, cwd=bench.work, env=bench.environment(), capture_output=True, text=True, check=False)
    document = json.loads(done.stdout)
    assert (done.returncode, document["graph_count"]) == (0, 1)
    recording = Path(done.stderr.splitlines()[-1])
    assert recording.is_relative_to(tmp_path / "home")
    assert [path.name for path in bench.work.iterdir()] == ["program.py"]


@pytest.mark.usefixtures("forked_interpreters")
def test_a_process_that_compiles_nothing_and_fails_at_an_export_is_told(tmp_path: Path) -> None:
    program = """
        import subprocess, sys, torch

        if len(sys.argv) == 1:
            sys.exit(subprocess.call([sys.executable, __file__, "load"]))
        torch.export.load("missing.pt2")
    """
    run = Bench(tmp_path, program).recorded()
    report = " ".join(run.out.split())
    assert run.code == 1
    assert re.match(r"Process \d+: Loading the exported program failed", report)
    assert "program.py:5" in report
