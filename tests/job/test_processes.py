"""The processes of a job: ranks, restarts, launchers and workers; and how long they waited, on one clock."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dynadiag.__main__ import main
from dynadiag.commands.explain import JobReader
from dynadiag.job.comparison import find_divergence, group_alike
from dynadiag.job.processes import open_job
from dynadiag.job.waits import clock_offsets, measure_waits
from dynadiag.render.job import job_text
from dynadiag.render.printer import Printer
from tests.job.build import Events, collective, compiled, group, rank, stopped
from tests.tui import build as recordings

BEGAN = 1000.0


def test_roles_restarts_and_missing_ranks(tmp_path: Path) -> None:
    rank(tmp_path, 0, compiled(), world=3, parent=7)
    rank(tmp_path, 2, compiled(), world=3, parent=7)
    rank(tmp_path, 0, compiled(), world=3, restart=1, parent=7)
    launcher = recordings.run_events("torchrun")
    launcher[0][0]["dynadiag_run"].update(pid=7, host="a")
    recordings.journal(tmp_path / "launcher.dynadiag", launcher)
    job = open_job(sorted(tmp_path.glob("*.dynadiag")))
    assert [(each.role, each.rank, each.restart) for each in job.processes] == [
        ("rank", 0, 0),
        ("rank", 2, 0),
        ("rank", 0, 1),
        ("launcher", None, 0),
    ]
    assert (job.world_size, job.missing(0), job.missing(1)) == (3, (1,), (1, 2))


def test_the_starts_of_a_job_are_counted_where_one_left_no_recording(tmp_path: Path) -> None:
    for restart in (0, 2):
        rank(tmp_path, 0, compiled(), world=1, restart=restart)
    text = job_text(JobReader(sorted(tmp_path.glob("*.dynadiag"))).report(), Printer(200))
    assert "note: the job was started 3 times\n" in text


def test_a_folder_with_the_one_rank_that_waited_for_others_is_a_job(tmp_path: Path) -> None:
    folder, document = tmp_path / "job", tmp_path / "explain.json"
    folder.mkdir()
    path = rank(folder, 0, end=stopped("wait timeout after 8000ms"))
    told = []
    for target in (folder, path):
        assert main(["explain", "--json", str(document), str(target)]) == 0
        told.append(json.loads(document.read_bytes()).get("divergence"))
    assert told[0]["ranks"] == [1]
    assert told[1] is None


def test_a_worker_with_its_ranks_environment_is_no_rank(tmp_path: Path) -> None:
    rank(tmp_path, 0, compiled(), world=1)
    made = rank(tmp_path / "w", 0, compiled(), world=1, parent=1 << 22) if (tmp_path / "w").mkdir() is None else None
    assert made is not None
    made.rename(tmp_path / "a-77.dynadiag")
    (tmp_path / "a-77.dynadiag").write_bytes(
        (tmp_path / "a-77.dynadiag").read_bytes().replace(f'"pid": {1 << 22}'.encode(), b'"pid": 4194999')
    )
    job = open_job(sorted(tmp_path.glob("*.dynadiag")))
    assert sorted(each.role for each in job.processes) == ["rank", "worker"]


def test_alike_ranks_share_their_steps(tmp_path: Path) -> None:
    for number in range(4):
        rank(tmp_path, number, compiled(breaks=number == 3), collective(), world=4)
    ranks = open_job(sorted(tmp_path.glob("*.dynadiag"))).ranks
    assert [[each.rank for each in group] for group in group_alike(ranks)] == [[0, 1, 2], [3]]
    traces = [each.trace for each in ranks[:3]]
    assert all(trace is not None and traces[0] is not None and trace.steps is traces[0].steps for trace in traces)


def test_a_rank_that_its_launcher_saw_killed_died_though_all_recordings_are_cut_short(tmp_path: Path) -> None:
    rank(tmp_path, 0, compiled(), collective(line=20), collective(line=21), world=2, parent=7)
    rank(tmp_path, 1, compiled(), collective(line=20), world=2, parent=7)
    paths = sorted(tmp_path.glob("*.dynadiag"))
    for path in paths:
        kept = [line for line in path.read_bytes().splitlines(keepends=True) if b"dynadiag_end" not in line]
        path.write_bytes(b"".join(kept))
    unknown = find_divergence(open_job(paths))
    assert unknown is None or unknown.kind == "timeout"
    launcher = recordings.run_events("torchrun")
    launcher[0][0]["dynadiag_run"].update(pid=7, host="a")
    launcher.append(({"dynadiag_end": {"uncaught": "ChildFailedError", "exit_codes": {"1": -9, "0": -15}}}, None))
    recordings.journal(tmp_path / "launcher.dynadiag", launcher)
    found = find_divergence(open_job(sorted(tmp_path.glob("*.dynadiag"))))
    assert found is not None
    assert (found.kind, found.ranks, found.line) == ("died", (1,), 20)
    assert "ended by signal 9" in found.text


def _with_times(folder: Path, number: int, times: list[float], host: str = "a", backend: str = "gloo") -> None:
    steps = [collective(at=time) for time in times]
    rank(folder, number, [*group(number, 2, backend=backend)], *steps, host=host)


def test_who_waited_for_whom(tmp_path: Path) -> None:
    _with_times(tmp_path, 0, [BEGAN, BEGAN + 1])
    _with_times(tmp_path, 1, [BEGAN + 0.5, BEGAN + 4])
    waits = measure_waits(open_job(sorted(tmp_path.glob("*.dynadiag"))).ranks)
    assert (waits[0].waited, waits[0].imposed) == (3.5, 0.0)
    assert (waits[1].waited, waits[1].imposed) == (0.0, 3.5)


def test_clocks_an_hour_apart(tmp_path: Path) -> None:
    own = [BEGAN, BEGAN + 1, BEGAN + 2]
    _with_times(tmp_path, 0, own)
    _with_times(tmp_path, 1, [time + 3600.1 for time in own], host="b")
    ranks = open_job(sorted(tmp_path.glob("*.dynadiag"))).ranks
    assert clock_offsets(ranks)["b"] == pytest.approx(3600.1)
    assert measure_waits(ranks)[0].waited == pytest.approx(0, abs=1e-6)


def test_nothing_is_said_of_waits_of_nccl(tmp_path: Path) -> None:
    for number in (0, 1):
        path = rank(tmp_path, number, collective(at=BEGAN))
        path.write_bytes(path.read_bytes().replace(b'"backend": "gloo"', b'"backend": "nccl"'))
    assert measure_waits(open_job(sorted(tmp_path.glob("*.dynadiag"))).ranks) == {}


def _first_line(folder: Path, *processes: Events) -> str:
    for number, events in enumerate(processes):
        made = recordings.run_events("train.py")
        made[0][0]["dynadiag_run"].update(pid=100 + number, host="a")
        recordings.journal(folder / f"{number}.dynadiag", [*made, *events])
    reader = JobReader(sorted(folder.glob("*.dynadiag")))
    return job_text(reader.report(), Printer(200)).splitlines()[0]


def test_the_first_line_is_of_the_processes_that_fare_worst(tmp_path: Path) -> None:
    for name in ("alike", "one", "each"):
        (tmp_path / name).mkdir()
    whole, broken = compiled(), compiled(breaks=True)
    assert _first_line(tmp_path / "alike", broken, broken).startswith("2 processes alike. Not one graph: 1 graph break")
    assert _first_line(tmp_path / "one", whole, broken).startswith("Process 101: Not one graph: 1 graph break")
    each = _first_line(tmp_path / "each", whole, [*whole, *compiled("1/0")])
    assert each == "No graph break in any of 2 processes."


def test_the_last_line_names_recordings_of_the_program_and_not_the_folder_of_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rank(tmp_path, 0, compiled(), world=1)  # of another run
    made = [tmp_path / f"a{number}.dynadiag" for number in range(3)]
    for number, path in enumerate(made):
        start = recordings.run_events("train.py")
        start[0][0]["dynadiag_run"].update(pid=100 + number, host="a")
        recordings.journal(path, [*start, *compiled(breaks=number == 2)])
    assert main(["explain", *map(str, made)]) == 0
    told = capsys.readouterr().out.splitlines()[-1]
    assert told == f"next: dynadiag browse {made[0]} {made[2]}"
    assert main(["explain", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"next: dynadiag browse {tmp_path}"
