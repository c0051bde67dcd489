"""A function in a fork: its result, and every way in which the fork may end."""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import gc
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest
import torch

from dynadiag.node_values import isolated
from dynadiag.node_values.isolated import ForkFailed, run_in_fork
from dynadiag.node_values.watch import save_tensors

ROOT = Path(__file__).parents[2]


def fail() -> NoReturn:
    raise ValueError("bad luck")


def test_the_result_comes_back() -> None:
    assert run_in_fork(lambda: b"x" * 1_000_000) == b"x" * 1_000_000


def test_threads_of_torch_work_in_it_after_they_worked_here() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        value = torch.randn(512, 512)
        expected = float((value @ value).sum())
        assert float(run_in_fork(lambda: str(float((value @ value).sum())).encode(), limit=60)) == expected
    finally:
        torch.set_num_threads(before)


def test_as_many_threads_of_openmp_run_in_it_as_in_the_program() -> None:
    """A kernel that Inductor compiled for two threads writes beyond its arrays with three."""
    (path,) = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libgomp" in line}
    openmp, before = ctypes.CDLL(path), torch.get_num_threads()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        of_new_threads = pool.submit(openmp.omp_get_max_threads).result()
    torch.set_num_threads(of_new_threads + 1)
    try:
        threads = run_in_fork(lambda: str(openmp.omp_get_max_threads()).encode())
        assert int(threads) == of_new_threads + 1
    finally:
        torch.set_num_threads(before)


def test_what_it_does_is_not_seen_here(capfd: pytest.CaptureFixture[str]) -> None:
    value = [1]

    def change() -> bytes:
        value.append(2)
        print("noise", flush=True)  # noqa: T201 - what a graph may do
        sys.stderr.write("noise")
        return b""

    run_in_fork(change)
    assert value == [1]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_what_the_program_has_not_written_yet_is_not_written_twice(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sys.stdout` is all that refers to the file: it would be closed where it is replaced."""
    monkeypatch.setattr(sys, name, (tmp_path / "log").open("w"))
    getattr(sys, name).write("once")
    run_in_fork(lambda: b"")
    getattr(sys, name).close()
    assert (tmp_path / "log").read_text() == "once"


def test_garbage_of_the_program_is_not_collected_in_it(tmp_path: Path) -> None:
    class Job:
        def __init__(self) -> None:
            self.own = self

        def __del__(self) -> None:
            with (tmp_path / "log").open("a") as log:
                log.write("ended ")

    def collect() -> bytes:
        gc.collect()
        return str(gc.isenabled()).encode()

    gc.collect()
    Job()
    assert run_in_fork(collect) == b"True"
    assert gc.isenabled()
    gc.collect()
    assert (tmp_path / "log").read_text() == "ended "


def test_an_exception_is_its_message() -> None:
    with pytest.raises(ForkFailed, match="ValueError: bad luck"):
        run_in_fork(fail)


def test_an_exit_is_said() -> None:
    with pytest.raises(ForkFailed, match="ended with code 3"):
        run_in_fork(lambda: os._exit(3))


def test_a_signal_is_said() -> None:
    with pytest.raises(ForkFailed, match=r"SIGKILL \(out of memory\?\)"):
        run_in_fork(lambda: os.kill(os.getpid(), signal.SIGKILL) or b"")


def test_memory_that_runs_out_is_said() -> None:
    def exhaust() -> bytes:
        with Path("/proc/self/statm").open() as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
        return bytes(torch.ones(1 << 30).numpy())

    with pytest.raises(ForkFailed, match=r"memory|allocate|MemoryError"):
        run_in_fork(exhaust)


def test_a_fork_that_hangs_is_ended() -> None:
    with pytest.raises(ForkFailed, match=r"after 0\.2 seconds"):
        run_in_fork(lambda: signal.pause() or b"", limit=0.2)


def test_no_handler_of_the_program_runs_in_it() -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: print("handled"))  # noqa: T201 - it must not run
    try:
        with pytest.raises(ForkFailed, match="SIGUSR1"):
            run_in_fork(lambda: os.kill(os.getpid(), signal.SIGUSR1) or b"")
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_the_program_is_not_told_of_the_fork() -> None:
    """A handler of SIGCHLD runs for the program's own children only, also for one that ends meanwhile."""
    ended = list[int]()
    before = signal.signal(signal.SIGCHLD, lambda number, _frame: ended.append(number))
    try:
        run_in_fork(lambda: b"")
        assert ended == []
        own = os.fork()
        if own == 0:
            os._exit(0)
        run_in_fork(lambda: b"")
        os.waitpid(own, 0)
        assert set(ended) == {signal.SIGCHLD}
    finally:
        signal.signal(signal.SIGCHLD, before)


IGNORES = """
import concurrent.futures, signal
import pytest
from dynadiag.node_values.isolated import ForkFailed, run_in_fork
from tests.node_values.test_isolated import fail

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
assert run_in_fork(lambda: b"result") == b"result"
with concurrent.futures.ThreadPoolExecutor(1) as pool:  # the handler cannot be changed in it
    assert pool.submit(run_in_fork, lambda: b"result").result() == b"result"
    with pytest.raises(ForkFailed, match="ValueError: bad luck"):
        pool.submit(run_in_fork, fail).result()
"""


def test_a_program_that_ignores_its_children_has_results() -> None:
    """In a process of its own: what other tests have left in this one is not a program's."""
    done = subprocess.run([sys.executable, "-c", IGNORES], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def children() -> set[str]:
    """The processes, ended ones too, whose parent is this one."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[stat.parent.name] = stat.read_text().rpartition(")")[2].split()[1]
    return {pid for pid, parent in parents.items() if parent == str(os.getpid())}


def test_no_process_and_no_descriptor_is_left() -> None:
    before, others = len(list(Path("/proc/self/fd").iterdir())), children()
    run_in_fork(lambda: b"")
    with pytest.raises(ForkFailed):
        run_in_fork(fail)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert children() <= others


def test_a_fork_that_cannot_begin_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "_leave_program_alone", fail)
    with pytest.raises(ForkFailed, match="ValueError: bad luck"):
        run_in_fork(lambda: b"")


def test_whole_values_are_written_as_safetensors(tmp_path: Path) -> None:
    import json
    import struct

    tensors = {"a": torch.arange(6.0).view(2, 3).T, "b": torch.tensor(True), "c": torch.zeros(2, dtype=torch.complex64)}
    save_tensors(tmp_path / "deep" / "values.safetensors", tensors)
    data = (tmp_path / "deep" / "values.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    assert length % 8 == 0
    assert header["a"] == {"dtype": "F32", "shape": [3, 2], "data_offsets": [0, 24]}
    assert header["b"] == {"dtype": "BOOL", "shape": [], "data_offsets": [24, 25]}
    assert "c" not in header
    assert torch.frombuffer(bytearray(data[8 + length : 8 + length + 24]), dtype=torch.float32).tolist() == [
        0.0, 3.0, 1.0, 4.0, 2.0, 5.0,
    ]  # fmt: skip


def test_what_the_program_has_buffered_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in place of stdout, to which nothing else refers, and garbage that says when it ends."""

    class Job:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            os.write(ended, b"x")

    ended = os.open(tmp_path / "ended", os.O_CREAT | os.O_WRONLY)
    gc.disable()
    try:
        Job()
        monkeypatch.setattr(sys, "stdout", (tmp_path / "log").open("w"))
        sys.stdout.write("begins\n")
        assert run_in_fork(lambda: str(gc.collect() * 0).encode()) == b"0"
        sys.stdout.close()
        gc.collect()
    finally:
        gc.enable()
    assert (tmp_path / "log").read_text() == "begins\n"
    assert (tmp_path / "ended").read_text() == "x"
