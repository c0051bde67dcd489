"""The fold: bounded memory, nothing half-written, and records that do not fit are counted, not fatal."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dynadiag.errors import DynadiagError
from dynadiag.recording import fold as folding
from dynadiag.recording.digest.digest import Digest
from dynadiag.recording.fold import fold
from dynadiag.recording.journal import Journal
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Event, Guard
from dynadiag.recording.store import RecordingWriter

HEADER = b'V1120 06:38:46.123456 77 a.py:1] {"artifact": {"name": "n"}, "frame_id": 0, "frame_compile_id": 0}\n'


class Digests(Digest):
    """A digest with given answers that remembers its calls."""

    def __init__(self, answer: Callable[[Event, Callable[[], str]], Iterable[Any]]) -> None:
        super().__init__()
        self._answer = answer
        self.seen: list[tuple[Event, dict[str, Any]]] = []

    def event(self, event: Event, metadata: dict[str, Any], payload: Callable[[], str]) -> Iterator[Any]:
        self.seen.append((event, metadata))
        return iter(self._answer(event, payload))


MakeDigest = Callable[[Callable[[Event, Callable[[], str]], Iterable[Any]]], Digests]


@pytest.fixture
def digests(monkeypatch: pytest.MonkeyPatch) -> MakeDigest:
    """Makes the digest of the next fold from its answers."""

    def install(answer: Callable[[Event, Callable[[], str]], Iterable[Any]]) -> Digests:
        made = Digests(answer)
        monkeypatch.setattr(folding, "Digest", lambda: made)
        return made

    return install


def journal(folder: Path) -> Journal:
    return Journal.create(folder / "journal.log")


def test_digest_sees_every_event_with_its_payload(tmp_path: Path, digests: MakeDigest) -> None:
    written = journal(tmp_path)
    written.append({"a": {"name": "x"}, "frame_id": 1, "frame_compile_id": 2, "attempt": 0}, "one\n\ttwo\n")
    written.append({"b": [], "compiled_autograd_id": 3, "rank": 0})
    written.append({"c": None, "compiled_autograd_id": 3, "frame_id": 1, "frame_compile_id": 2})
    texts = []
    digest = digests(lambda event, payload: texts.append(payload()) or ())
    fold(written.path, tmp_path / "a.dynadiag")
    assert [(event.kind, event.name, event.compile_id, event.attempt) for event, _ in digest.seen] == [
        ("a", "x", "1/2", 0),
        ("b", None, "!3", None),
        ("c", None, "!3/1/2", None),
    ]
    assert texts == ["one\n\ttwo\n", "", ""]
    with Recording(tmp_path / "a.dynadiag") as opened:
        assert [event for event, _ in digest.seen] == list(opened.events())
        assert [metadata for _, metadata in digest.seen] == [opened.metadata(index) for index in range(3)]


def test_records_are_kept_and_those_that_do_not_fit_are_counted(tmp_path: Path, digests: MakeDigest) -> None:
    written = journal(tmp_path)
    for _ in range(3):
        written.append({"a": {}})
    good = Guard(0, "0/0", "k", "s", "e", None, None)
    wrong = Guard("7", "0/0", "k", "s", "e", None, None)  # type: ignore[arg-type]
    digests(lambda event, _: [wrong if event.index else good])
    fold(written.path, tmp_path / "a.dynadiag")
    with Recording(tmp_path / "a.dynadiag") as opened:
        assert opened.guards() == (good,)
        _, note = opened.run.notes
        assert note.startswith("2 records of the log had unexpected values")


def test_noise_is_counted_in_the_notes(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"printed\n\n" + HEADER + b"printed\n" + HEADER[:40] + b"\n")
    fold(tmp_path / "a.log", tmp_path / "a.dynadiag")
    with Recording(tmp_path / "a.dynadiag") as opened:
        assert opened.unparsed_lines == 4
        assert opened.run.notes[1:] == ("4 lines of a.log could not be read as events (they are kept unchanged).",)
        assert opened.counts() == {"artifact": 1, "dynadiag_unparsed": 3}


def test_kinds_without_number_are_filed_together(tmp_path: Path) -> None:
    written = journal(tmp_path)
    for number in range(3000):
        written.append({f"kind{number}": {}})
    fold(written.path, tmp_path / "a.dynadiag")
    with Recording(tmp_path / "a.dynadiag") as opened:
        counts = opened.counts()
        assert len(counts) <= folding._MAX_KINDS + 1
        assert sum(counts.values()) == 3000
        assert len(list(opened.events("unknown"))) == counts["unknown"] > 1900


def test_interrupted_fold_leaves_nothing(tmp_path: Path, digests: MakeDigest) -> None:
    written = journal(tmp_path)
    written.append({"a": {}})

    def interrupt(*_: object) -> Iterable[object]:
        raise KeyboardInterrupt

    output = tmp_path / "a.dynadiag"
    digests(interrupt)
    with pytest.raises(KeyboardInterrupt):
        fold(written.path, output)
    assert list(tmp_path.iterdir()) == [written.path]
    output.write_text("mine")
    with pytest.raises(KeyboardInterrupt):
        fold(written.path, output, force=True)
    assert output.read_text() == "mine"
    assert sorted(tmp_path.iterdir()) == [output, written.path]


def test_folder_that_cannot_be_written(tmp_path: Path) -> None:
    written = journal(tmp_path)
    written.append({"a": {}})
    with pytest.raises(DynadiagError, match="cannot write"):
        fold(written.path, Path("/proc/a.dynadiag"))


FULL = """
import resource, signal, sys
from pathlib import Path
from dynadiag.errors import DynadiagError
from dynadiag.recording.import_export import import_log
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    import_log(Path(sys.argv[1]), Path(sys.argv[2]))
except DynadiagError as error:
    print(error)
"""


def test_full_disk_leaves_nothing(tmp_path: Path) -> None:
    log, output = tmp_path / "a.log", tmp_path / "a.dynadiag"
    log.write_bytes(b"".join(HEADER + b"\t" + os.urandom(50_000).hex().encode() + b"\n" for _ in range(20)))
    said = subprocess.run(
        [sys.executable, "-c", FULL, str(log), str(output)], capture_output=True, text=True, check=True
    )
    assert said.stdout.startswith(f"cannot write {output}: ")
    assert list(tmp_path.iterdir()) == [log]


def test_digest_sees_the_beginning_of_an_endless_payload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digests: MakeDigest
) -> None:
    monkeypatch.setattr(folding, "MAX_DIGEST_PAYLOAD", 1000)
    written = journal(tmp_path)
    written.append({"a": {}}, "x" * 5000)
    texts: list[str] = []
    digests(lambda _, payload: texts.append(payload()) or ())
    fold(written.path, tmp_path / "a.dynadiag")
    assert texts == ["x" * 999]
    with Recording(tmp_path / "a.dynadiag") as opened:
        assert opened.payload(0) == "x" * 5000


# VmHWM, not ru_maxrss: that one is carried over from the process that starts this one, which may have loaded torch.
PEAK = """
import re, sys
from pathlib import Path
from dynadiag.recording.import_export import import_log
import_log(Path(sys.argv[1]), Path(sys.argv[2]), force=True)
print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""


def peak(log: Path) -> int:
    """The largest resident set of a process that imports `log`, in KB."""
    command = [sys.executable, "-c", PEAK, str(log), str(log.with_suffix(".dynadiag"))]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize(
    "unit",
    [
        HEADER + b"\tline\n" * 200,
        b"printed by a program, a line like many others, of a length that is usual\n",
        b'V1120 06:38:46.123456 77 a.py:1] {"inductor_output_code": {}}\n' + b"\tasync_compile.cpp(1)\n" * 700_000,
        b"x" * (1 << 20),
    ],
    ids=["events", "noise", "large payloads", "no newline"],
)
def test_memory_does_not_grow_with_the_log(tmp_path: Path, unit: bytes) -> None:
    peaks = []
    for megabytes in (17, 68):
        log = tmp_path / f"{megabytes}.log"
        with log.open("wb") as file:
            file.write(HEADER)
            for _ in range(megabytes * 1_000_000 // len(unit)):
                file.write(unit)
        peaks.append(peak(log))
    assert peaks[1] < peaks[0] * 1.25, peaks
    assert peaks[1] < 150_000, peaks


def test_a_recording_that_cannot_be_begun_is_not_left_open() -> None:
    with pytest.raises(sqlite3.Error) as caught:  # its traceback keeps the writer
        RecordingWriter(Path("/dev/full"))
    assert Path("/dev/full") not in {file.resolve() for file in Path("/proc/self/fd").iterdir()}, caught
