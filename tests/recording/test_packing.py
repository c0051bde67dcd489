"""A packed job gives back every recording, stores like ones once, and refuses a file that a stranger has changed."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from dynadiag.__main__ import main
from dynadiag.errors import UnreadableInput
from dynadiag.job.comparison import find_divergence
from dynadiag.job.processes import open_job
from dynadiag.recording.import_export import export_log
from dynadiag.recording.opening import list_recordings, open_recording
from dynadiag.recording.packing import is_packed, write_packed
from dynadiag.recording.reader import Recording
from tests.job import build


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A folder with four ranks, of which the third recompiles."""
    folder = tmp_path / "ranks"
    folder.mkdir()
    for number in range(4):
        again = (build.compiled("0/1", again=("4", "5")),) if number == 2 else ()
        build.rank(folder, number, build.compiled("0/0"), *again, world=4)
    return folder


@pytest.fixture
def packed(job: Path, tmp_path: Path) -> Path:
    output = tmp_path / "job.dynadiag"
    assert main(["pack", "-o", str(output), str(job)]) == 0
    return output


def open_all(packed: Path) -> None:
    for path in list_recordings(packed):
        open_recording(path).close()


def test_each_recording_comes_back(job: Path, packed: Path, tmp_path: Path) -> None:
    paths = list_recordings(packed)
    assert [path.name for path in paths] == [path.name for path in list_recordings(job)]
    for number, path in enumerate(paths):
        with open_recording(path) as there, Recording(job / path.name) as here:
            assert there.run == here.run
            assert there.compiles() == here.compiles()
            assert list(there.events()) == list(here.events())
        export_log(path, tmp_path / f"{number}.log")
        export_log(job / path.name, tmp_path / f"{number}-own.log")
        assert (tmp_path / f"{number}.log").read_bytes() == (tmp_path / f"{number}-own.log").read_bytes()


def test_like_ranks_are_stored_as_differences(packed: Path) -> None:
    with sqlite3.connect(packed) as database:
        rows = database.execute("SELECT base, length(tables) + length(log) FROM member ORDER BY id").fetchall()
    database.close()
    assert [base for base, _ in rows] == [None, 0, 0, 0]
    assert rows[1][1] * 5 < rows[0][1]


def test_a_packed_job_is_compared_as_a_folder_is(job: Path, packed: Path) -> None:
    here, there = (find_divergence(open_job(list_recordings(path))) for path in (job, packed))
    assert there is not None
    assert there == here
    assert (there.kind, there.ranks) == ("recompile", (2,))


def test_commands_take_a_packed_job_and_one_of_its_recordings(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(packed)]) == 0
    assert "rank 2" in capsys.readouterr().out
    name = list_recordings(packed)[0].name
    assert main(["explain", str(packed / name)]) == 0
    assert main(["diff", str(packed / name), str(packed / name)]) == 0
    capsys.readouterr()
    assert main(["explain", str(packed / "no.dynadiag")]) == 2
    assert "no recording no.dynadiag" in capsys.readouterr().err


def test_a_recording_that_cannot_be_read_is_named(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (job / "a-rank9.dynadiag").write_bytes(b"SQLite format 3\0" + bytes(100))
    assert main(["pack", "-o", str(tmp_path / "out.dynadiag"), str(job)]) == 0
    assert "left out: " in (said := capsys.readouterr().err)
    assert "a-rank9.dynadiag" in said
    assert len(list_recordings(tmp_path / "out.dynadiag")) == 4


def test_an_existing_file_is_kept(job: Path, packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = packed.read_bytes()
    assert main(["pack", "-o", str(packed), str(job)]) == 2
    assert packed.read_bytes() == before
    assert main(["pack", str(job)]) == 2
    assert "-o job.dynadiag" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [
        "CREATE VIEW other AS SELECT 1",
        "UPDATE member SET name = '../../x' WHERE id = 0",
        "UPDATE member SET log_size = 1000000000 WHERE id = 1",
        "UPDATE member SET base = 1 WHERE id = 1",
        "UPDATE member SET tables = x'00' WHERE id = 0",
        "DELETE FROM member WHERE id = 0",
    ],
)
def test_a_changed_file_is_refused(packed: Path, change: str) -> None:
    with sqlite3.connect(packed) as database:
        database.execute(change)
    database.close()
    with pytest.raises(UnreadableInput):
        open_all(packed)


def test_a_packed_job_cut_short_is_refused(packed: Path, tmp_path: Path) -> None:
    whole = packed.read_bytes()
    for size in (100, len(whole) // 2, len(whole) - 1):
        cut = tmp_path / "cut.dynadiag"
        cut.write_bytes(whole[:size])
        assert is_packed(cut)
        with pytest.raises(UnreadableInput):
            open_all(cut)


def test_hostile_tables_are_refused_as_in_a_file(packed: Path, tmp_path: Path) -> None:
    with Recording(list_recordings(packed)[0]) as recording:
        content = recording.packed_content()
    database = sqlite3.connect(":memory:")
    database.deserialize(content.tables)
    database.execute("CREATE TRIGGER t AFTER INSERT ON block BEGIN SELECT 1; END")
    bad = type(content)(content.name, database.serialize(), content.log)
    database.close()
    write_packed([bad], tmp_path / "bad.dynadiag")
    with pytest.raises(UnreadableInput, match="schema differs"):
        open_recording(tmp_path / "bad.dynadiag" / content.name)
