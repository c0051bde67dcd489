"""Collectives that a program issues from Python are recorded before they begin, and nothing of torch's is disturbed."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
import torch
import torch.distributed as dist

import dynadiag
from dynadiag.capture.collective_recorder import StandstillWatch
from dynadiag.capture.collectives import CollectiveLimit, UnseenCollectives
from dynadiag.capture.run_metadata import job_place, recording_stems
from dynadiag.job.processes import open_job
from dynadiag.recording.reader import Recording
from dynadiag.torch_private import process_groups

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="this torch has no torch.distributed")


def summed(x: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(x)
    dist.all_reduce(x)
    return x


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Recording, str]]:
    """A recording of a job of one rank, and the traceback of a collective that failed in it."""
    path = tmp_path_factory.mktemp("collectives") / "run.dynadiag"
    said = ""
    with dynadiag.record(path):
        dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
        try:
            x = torch.ones(2, 3)
            dist.all_reduce(x)
            dist.all_gather([torch.empty(2, 3)], x)
            dist.broadcast(x, src=0)
            work = dist.all_reduce(x, async_op=True)
            assert work is not None
            work.wait()
            torch.compile(summed, backend="eager")(x)
            try:
                dist.broadcast(torch.ones(2), src=1)  # there is one rank: it fails here, not in gloo's thread
            except (RuntimeError, ValueError):
                said = traceback.format_exc()
            torch.compiler.set_stance("force_eager")
            dist.barrier()
        finally:
            torch.compiler.set_stance("default")
            dist.destroy_process_group()
    with dynadiag.open(path) as recording:
        yield recording, said


def test_each_collective_has_its_sizes_and_its_line(recorded: tuple[Recording, str]) -> None:
    found = recorded[0].collectives()
    assert [(each.op, each.sizes, each.is_async) for each in found] == [
        ("all_reduce", "(2, 3)", False),
        ("all_gather", "(2, 3)", False),
        ("broadcast", "(2, 3)", False),
        ("all_reduce", "(2, 3)", True),
        ("broadcast", "(2,)", False),
        ("barrier", "", False),
    ]
    lines = Path(__file__).read_text().splitlines()
    assert all(each.file == __file__ and each.op in lines[(each.line or 0) - 1] for each in found)
    assert [each.stance for each in found] == [None] * 5 + ["force_eager"]
    assert {each.dtypes for each in found} == {"float32", ""}


def test_collectives_of_compiled_code_are_counted(recorded: tuple[Recording, str]) -> None:
    told = [recorded[0].metadata(event.index)["dynadiag_unseen"] for event in recorded[0].events("dynadiag_unseen")]
    after = recorded[0].collectives()[4]
    assert told == [{"group": after.group, "count": 2, "before": after.number}]


def test_calls_that_are_seen_are_not_counted_again() -> None:
    unseen = UnseenCollectives()
    unseen.step("0", (0, 0))  # the group begins
    unseen.step("0", (2, 3))
    unseen.step("0", None)
    assert unseen.since({"0": 3, "1": 4}) == {"0": 2}
    assert unseen.take("0") == 2
    unseen.step("0", (3, 4))
    assert unseen.take("0") == 0
    assert unseen.since({"0": 6}) == {"0": 2}


def test_a_recording_says_that_it_has_no_collectives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_listener: object) -> None:
        raise AttributeError("no such method")

    monkeypatch.setattr(process_groups, "observe", fails)
    with dynadiag.record(tmp_path / "run.dynadiag"):
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        assert "the recorder could not record all of collectives: AttributeError: no such method" in recording.run.notes
        assert recording.compiles()


def test_a_standstill_is_told_with_the_main_threads_frame() -> None:
    told: list[tuple[str, threading.Thread]] = []
    heard = threading.Event()

    def stood(_since: float, frame: FrameType) -> None:
        if heard.is_set():
            return
        told.append((frame.f_code.co_filename, threading.current_thread()))
        heard.set()

    watch = StandstillWatch(lambda: 1, stood, first=0.001)
    watch.start()
    assert heard.wait(60)
    watch.stop()
    told[0][1].join(60)
    assert not told[0][1].is_alive()
    assert told[0][1] is not threading.main_thread()


def test_what_goes_on_does_not_stand_still() -> None:
    numbers, told, looks = itertools.count(), list[float](), threading.Semaphore(0)

    def progress() -> int:
        looks.release()
        return next(numbers)

    watch = StandstillWatch(progress, lambda since, _frame: told.append(since), first=0.001)
    watch.start()
    assert all(looks.acquire(timeout=60) for _ in range(5))
    watch.stop()
    assert told == []


def test_the_process_group_is_recorded(recorded: tuple[Recording, str]) -> None:
    recording = recorded[0]
    (event,) = recording.events("dynadiag_group")
    data = recording.metadata(event.index)["dynadiag_group"]
    assert (data["size"], data["rank"], data["backend"]) == (1, 0, "gloo")
    assert recording.run.rank == 0


def test_no_frame_of_ours_is_in_a_traceback(recorded: tuple[Recording, str]) -> None:
    assert "broadcast" in recorded[1]
    assert "dynadiag/" not in recorded[1].replace(str(Path(__file__).parents[1]), "")


def test_torch_has_its_methods_back() -> None:
    assert not [
        name for name, value in vars(dist.ProcessGroup).items() if type(value).__module__.startswith("dynadiag")
    ]


def test_of_very_many_collectives_some_are_left_out() -> None:
    limit = CollectiveLimit()
    admitted = sum(limit.admit(100.0) for _ in range(30_000))
    assert admitted == 20_000
    assert limit.admit(101.5)
    assert not limit.admit(102.0)
    assert limit.count == 30_002


def test_the_place_in_a_job() -> None:
    torchrun = {"RANK": "3", "WORLD_SIZE": "8", "TORCHELASTIC_RESTART_COUNT": "1", "SLURM_PROCID": "0"}
    assert job_place(torchrun) == {"rank": 3, "world_size": 8, "restart": 1}
    srun = {"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "77", "SLURM_NODEID": "1"}
    assert job_place(srun) == {"rank": 2, "world_size": 4, "node": 1, "job": "77"}
    assert job_place({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}) == {}
    assert job_place({"RANK": "one"}) == {}
    assert next(recording_stems("host", torchrun)) == "host-rank3-restart1"


RAISES = """
import os
import torch.multiprocessing as mp

def worker(rank):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2")
    raise KeyError("learning rate")

if __name__ == "__main__":
    mp.spawn(worker, nprocs=1)
"""


def test_a_rank_that_raises_leaves_a_recording_with_its_exception(tmp_path: Path) -> None:
    """`spawn` catches it, and this rank has compiled nothing and joined no group."""
    program = tmp_path / "program.py"
    program.write_text(RAISES)
    environment = {**os.environ, "DYNADIAG_RECORD": str(tmp_path / "job")}
    subprocess.run([sys.executable, program], env=environment, check=False, capture_output=True)
    (path,) = (tmp_path / "job").iterdir()
    (process,) = open_job([path]).ranks
    assert (process.rank, process.uncaught, process.message) == (0, "builtins.KeyError", "'learning rate'")
    assert [(frame.line, frame.function) for frame in process.stack] == [(7, "worker")]
