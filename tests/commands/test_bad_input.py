"""Any input of a command: exit code 2 with one line, or a correct reading. Nothing runs, no escape code gets out."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dynadiag.__main__ import main
from tests.commands.build import journal, recording

pytestmark = pytest.mark.timeout(60)  # a pipe that is waited for would hang

# Every command that reads a file, with where the file stands.
READERS: dict[str, Callable[[str, Path], list[str]]] = {
    "explain": lambda path, _: ["explain", "--all", path],
    "explain --json": lambda path, _: ["explain", "--json", "-", path],
    "kernels": lambda path, _: ["kernels", path],
    "kernels --json": lambda path, _: ["kernels", "--json", "-", path],
    "graph": lambda path, _: ["graph", path],
    "graph --nodes": lambda path, _: ["graph", "--nodes", "0", path],
    "export": lambda path, folder: ["export", "-o", str(folder / "out.log"), "--force", path],
    "import": lambda path, folder: ["import", "-o", str(folder / "out.dynadiag"), "--force", path],
}
ESCAPE = "\x1b]0;title\x07\x1b[31mred\x9b0m"
HOSTILE = {
    "escapes": ESCAPE,
    "markup": "[bold red]x[/] [@click=app.quit]y[/]",
    "newlines": "a\nb\r\nc\u2028d\x85e",
    "bidi": "\u202egnp.exe\u2066",
    "long": "x" * 100_000,
    "surrogate": "\ud800\udfff",
    "empty": "",
    "quotes": "\"'`$(touch /tmp/never);\\",
}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("FORCE_COLOR", "")
    monkeypatch.chdir(tmp_path)


def assert_clean(capsys: pytest.CaptureFixture[str], code: int, *, refused: bool | None = None) -> str:
    """Check one call by the rules. Returns what it wrote."""
    out, err = capsys.readouterr()
    for text in (out, err):
        assert not set(text) & {chr(number) for number in (*range(9), *range(11, 32), *range(127, 160))}
        assert "Traceback" not in text
    if refused is not None:
        assert (code == 2) == refused, err
    if code == 2:
        assert err.startswith("dynadiag: ")
        assert err.count("\n") == 1
        assert not out
    return out + err


def folder(path: Path) -> None:
    path.mkdir()


def newer(path: Path) -> None:
    recording(path)
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA user_version = 1000")


FILES: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "folder": folder,
    "empty": lambda path: path.write_bytes(b""),
    "junk": lambda path: path.write_bytes(os.urandom(5000)),
    "text": lambda path: path.write_text("hello\n" * 10),
    "header alone": lambda path: path.write_bytes(b"SQLite format 3\x00"),
    "zeros": lambda path: path.write_bytes(b"SQLite format 3\x00" + bytes(8192)),
    "truncated": lambda path: os.truncate(recording(path), 30_000),
    "newer": newer,
    "link to itself": lambda path: path.symlink_to(path),
    "pipe": lambda path: os.mkfifo(path),
}


@pytest.mark.parametrize("reader", [name for name in READERS if name != "import"])
@pytest.mark.parametrize("kind", FILES)
def test_what_is_no_recording_is_refused(
    reader: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "in.dynadiag"
    FILES[kind](path)
    before = {entry.name for entry in tmp_path.iterdir()}
    assert_clean(capsys, main(READERS[reader](str(path), tmp_path)), refused=True)
    assert {entry.name for entry in tmp_path.iterdir()} <= before | {"state"}


@pytest.mark.parametrize("kind", FILES)
def test_what_is_no_log_is_refused(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "in.log"
    FILES[kind](path)
    assert_clean(capsys, main(["import", "-o", str(tmp_path / "out.dynadiag"), str(path)]), refused=True)
    assert not (tmp_path / "out.dynadiag").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("reader", READERS)
def test_what_may_not_be_read_is_refused(reader: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recording(tmp_path / "in.dynadiag")
    path.chmod(0)
    assert_clean(capsys, main(READERS[reader](str(path), tmp_path)), refused=True)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", ["x" * 5000, ESCAPE, "a\nb", "\udcff.dynadiag", "/proc/self/mem", "/dev/null", "~"])
def test_names_that_no_file_has_are_refused(
    reader: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert_clean(capsys, main(READERS[reader](name, tmp_path)), refused=True)


@pytest.mark.parametrize("reader", [name for name in READERS if name != "import"])
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_text_is_read_and_shown_harmlessly(
    reader: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recording(tmp_path / "in.dynadiag", HOSTILE[kind], file="/x/" + HOSTILE[kind][:100] + ".py")
    assert_clean(capsys, main(READERS[reader](str(path), tmp_path)), refused=False)


@pytest.mark.parametrize("kind", [kind for kind in HOSTILE if kind not in ("long", "empty", "surrogate")])
def test_hostile_names_of_files_are_shown_harmlessly(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recording(tmp_path / (HOSTILE[kind].replace("/", "") + ".dynadiag"))
    for reader in READERS:
        code = main(READERS[reader](str(path), tmp_path))
        assert_clean(capsys, code, refused=reader == "import")


def test_nothing_is_imported_because_a_graph_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import sys

    path = recording(tmp_path / "in.dynadiag", target="antigravity.fly")
    for reader in ("graph --nodes", "graph", "explain"):
        assert_clean(capsys, main(READERS[reader](str(path), tmp_path)), refused=False)
    other = recording(tmp_path / "other.dynadiag", target="torch.load")
    assert main(["graph", "--nodes", "0", str(other)]) == 0
    assert "torch.load" in capsys.readouterr().out
    assert "antigravity" not in sys.modules


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    flips=st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(0, 7)), max_size=4),
    cut=st.one_of(st.none(), st.integers(0, 1 << 30)),
    reader=st.sampled_from([name for name in READERS if name != "import"]),
    as_journal=st.booleans(),
)
def test_damaged_files_are_refused_or_read(
    flips: list[tuple[int, int]],
    cut: int | None,
    reader: str,
    as_journal: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "in.dynadiag"
    path.unlink(missing_ok=True)
    (journal if as_journal else recording)(path)
    data = bytearray(path.read_bytes())
    for place, bit in flips:
        data[place % len(data)] ^= 1 << bit
    path.write_bytes(data if cut is None else data[: cut % len(data)])
    assert_clean(capsys, main(READERS[reader](str(path), tmp_path)))


def test_a_damaged_log_is_imported_as_far_as_it_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = journal(tmp_path / "in.log")
    log.write_bytes(b"\xff\x00garbage\n" + log.read_bytes()[:-20])
    assert main(["import", "-o", str(tmp_path / "out.dynadiag"), str(log)]) == 0
    assert main(["export", "-o", str(tmp_path / "out.log"), str(tmp_path / "out.dynadiag")]) == 0
    assert (tmp_path / "out.log").read_bytes() == log.read_bytes()
    assert main(["explain", str(tmp_path / "out.dynadiag")]) == 0
    assert_clean(capsys, 0)


WRITERS: dict[str, Callable[[str, str], list[str]]] = {
    "explain --json": lambda path, output: ["explain", "--json", output, path],
    "kernels --json": lambda path, output: ["kernels", "--json", output, path],
    "doctor --json": lambda path, output: ["doctor", "--json", output],
    "graph": lambda path, output: ["graph", "-o", output, path],
    "export": lambda path, output: ["export", "-o", output, path],
    "explain log": lambda path, output: ["explain", "-o", output, path + ".log"],
    "import": lambda path, output: ["import", "-o", output, path + ".log"],
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("output", ["none/out", "folder", "x" * 300, "file/out", "/proc/nothing/out"])
def test_places_that_cannot_be_written_are_refused(
    writer: str, output: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recording(tmp_path / "in.dynadiag")
    journal(tmp_path / "in.dynadiag.log")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("a file")
    assert_clean(capsys, main(WRITERS[writer](str(path), output)), refused=True)
    assert (tmp_path / "file").read_text() == "a file"


@pytest.mark.parametrize("writer", ["graph", "export", "explain log", "import"])
def test_an_existing_output_is_refused_without_force(
    writer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recording(tmp_path / "in.dynadiag")
    journal(tmp_path / "in.dynadiag.log")
    output = tmp_path / "out"
    output.write_text("mine")
    command = WRITERS[writer](str(path), str(output))
    said = assert_clean(capsys, main(command), refused=True)
    assert "--force" in said
    assert output.read_text() == "mine"
    assert main([command[0], "--force", *command[1:]]) == 0
    assert output.read_bytes() != b"mine"


def test_json_replaces_a_document_and_is_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recording(tmp_path / "in.dynadiag")
    output = tmp_path / "out.json"
    output.write_text('{"schema": 1, "dynadiag": "0.1.0", "old": true}')
    assert main(["explain", "--json", str(output), str(path)]) == 0
    assert json.loads(output.read_text())["schema"] == 1
    assert main(["explain", "--json", "-", str(path)]) == 0


@pytest.mark.parametrize(
    "words",
    [
        ["explain"],
        ["explain", "--nonsense", "x.py"],
        ["explain", "--stop-after", "0", "x.py"],
        ["explain", "--stop-after", "many", "x.py"],
        ["explain", "--seconds", "0", "x.py"],
        ["explain", "--after", "-1", "x.py"],
        ["explain", "--limit", "-1", "x.py"],
        ["explain", "--limit", "nan", "x.py"],
        ["explain", "nothing.py"],
        ["explain", "nothing.dynadiag"],
        ["explain", "nothing.py:f"],
        ["explain", "-m"],
        ["explain", "GB999999"],
        ["explain", "."],
        ["check", ""],
        ["explain", "--json=--", "x.py"],
        ["graph"],
        ["graph", "--nodes", "x", "a"],
        ["kernels"],
        ["export", "x.dynadiag"],
        ["nonsense"],
        ["--nonsense"],
        [],
        [ESCAPE],
        ["explain", ESCAPE],
        ["explain", "--json"],
    ],
)
def test_usage_errors_are_one_line(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert_clean(capsys, main(words), refused=True)


def test_a_kernel_or_graph_that_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(recording(tmp_path / "in.dynadiag"))
    assert "lists them" in assert_clean(capsys, main(["kernels", path, "none"]), refused=True)
    assert "no graph 9" in assert_clean(capsys, main(["graph", "--nodes", "9", path]), refused=True)


def test_a_folder_of_recordings_is_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "runs").mkdir()
    for rank in range(3):
        journal(tmp_path / "runs" / f"host-rank{rank}.dynadiag", text=f"rank{rank}")
    assert main(["explain", "--json", "-", str(tmp_path / "runs")]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["target"] == "rank0"
    assert [other["target"] for other in document["ranks"]] == ["rank1", "rank2"]


@pytest.mark.parametrize("command", ["bisect", "fix", "minify"])
def test_a_recording_is_not_run_as_a_program(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording(tmp_path / "in.dynadiag")
    output = ["-o", "repro.py"] if command == "minify" else []
    assert "cannot be run" in assert_clean(capsys, main([command, *output, "in.dynadiag"]), refused=True)


def test_a_folder_that_is_not_there_is_no_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"{tmp_path / 'job'}/"]) == 2
    assert "no such folder; a process leaves a recording there once it compiles" in capsys.readouterr().err


def test_options_after_a_recording_are_the_commands_and_after_a_program_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = str(recording(tmp_path / "run.dynadiag"))
    assert main(["explain", "--json", "-", made]) == 0
    before = capsys.readouterr().out
    assert main(["explain", made, "--json", "-"]) == 0
    assert capsys.readouterr().out == before
    assert main(["explain", made, "--nonsense"]) == 2
    assert "unrecognized arguments: --nonsense" in capsys.readouterr().err
    assert main(["explain", made, "prog.py"]) == 2
    assert "prog.py: a program beside a recording" in capsys.readouterr().err
    (tmp_path / "prog.py").write_text("import sys\nprint(sys.argv[1:])\n")
    assert main(["explain", "prog.py", "--json", "x"]) == 0
    assert not (tmp_path / "x").exists()
