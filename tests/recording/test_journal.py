"""The journal: torch's own format, whole events, and nothing that reaches the user's program."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from dynadiag.errors import DynadiagError
from dynadiag.recording.journal import LIMIT_KIND, Journal
from dynadiag.recording.log import LogParser, RawEvent, event_kind, parse_metadata, payload_text


def events(path: Path) -> list[tuple[dict[str, object], str]]:
    """The metadata and payloads of the events of a journal, which holds nothing else."""
    data = path.read_bytes()
    parser = LogParser()
    return [_parts(data, raw) for raw in parser.feed(data) + parser.finish()]


def _parts(data: bytes, raw: RawEvent) -> tuple[dict[str, object], str]:
    assert raw.header is not None
    metadata = parse_metadata(raw.header)
    assert metadata is not None
    return metadata, payload_text(data[raw.start + len(raw.header) + 1 : raw.start + raw.size])


def test_writes_what_torch_would_write(tmp_path: Path) -> None:
    import torch
    from torch._logging._internal import TorchLogsFormatter

    odd = [1, 2] if torch.__version__ < "2.13" else {1, 2}  # what 2.11 cannot write as JSON ends its logging
    journal = Journal.create(tmp_path / "journal.log")
    formatter = TorchLogsFormatter(trace=True)
    expected = []
    cases: list[tuple[dict[str, Any], str | None]] = [
        ({"artifact": {"name": "é", "odd": odd}, "frame_id": 0, "has_payload": "0"}, "a\n\n\tb\n"),
        ({"str": [torch_file(), 0]}, None),
        ({"dynamo_start": {"stack": []}, "rank": 3, "has_payload": "0"}, ""),
    ]
    for metadata, payload in cases:
        record = logging.LogRecord("torch.__trace", logging.DEBUG, torch_file(), 12, "", None, None)
        record.metadata, record.payload = metadata, payload
        expected.append(formatter.format(record) + "\n")
        journal.append(metadata, payload, pathname=record.pathname, lineno=record.lineno, created=record.created)
    journal.close()
    written = (tmp_path / "journal.log").read_text()
    micros = re.compile(r"(?m)^(V\d{4} \d\d:\d\d:\d\d)\.\d{6}")  # logging keeps milliseconds, we keep what there is
    assert micros.sub(r"\1", written) == micros.sub(r"\1", "".join(expected))


def torch_file() -> str:
    import torch

    return str(Path(torch.__file__).parent / "_dynamo" / "utils.py")


def test_time_is_that_of_the_record(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "journal.log")
    journal.append({"a": 1}, created=1_700_000_000.25)
    journal.append({"a": 1}, created=1_700_000_000.75)
    lines = (tmp_path / "journal.log").read_text().splitlines()
    assert [line[15:22] for line in lines] == ["250000 ", "750000 "]
    assert lines[0][:14] == lines[1][:14]


def test_payload_gets_its_digest(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "journal.log")
    assert journal.append({"dynadiag_source": {"file": "a.py"}}, "x = 1\n\n\ty")
    ((metadata, payload),) = events(journal.path)
    assert payload == "x = 1\n\n\ty"
    assert metadata["has_payload"] == hashlib.md5(payload.encode()).hexdigest()


class Rude:
    """A user's object whose repr raises."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_odd_values_never_raise(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "journal.log")
    circle: list[object] = []
    circle.append(circle)
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    odd = {
        "a": Rude(),
        "b": {(1, 2): 3},
        "c": circle,
        "d": float("nan"),
        "e": "\ud800",
        "f": deep,
        "g": {1},
        "h": b"\xff",
    }
    for key, value in odd.items():
        assert journal.append({key: value}, "\ud800 lone"), key
    assert [event_kind(metadata) for metadata, _ in events(journal.path)] == list(odd)


def test_existing_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "journal.log").write_text("mine")
    with pytest.raises(DynadiagError, match="already exists"):
        Journal.create(tmp_path / "journal.log")
    with pytest.raises(DynadiagError, match="cannot write"):
        Journal.create(tmp_path / "no" / "journal.log")
    assert (tmp_path / "journal.log").read_text() == "mine"


def test_threads_write_whole_events(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "journal.log")

    def write(name: int) -> None:
        for number in range(300):
            journal.append({"n": [name, number]}, f"{name}\n" * 500)

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal.close()
    found = events(journal.path)
    for name in range(4):
        assert [metadata["n"][1] for metadata, _ in found if metadata["n"][0] == name] == list(range(300))  # type: ignore[index]
    assert all(payload == f"{metadata['n'][0]}\n" * 500 for metadata, payload in found)  # type: ignore[index]


def test_a_forked_child_leaves_the_journal_alone(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "journal.log")
    journal.append({"parent": 1})
    child = os.fork()
    if child == 0:
        kept = not journal.is_owner and not journal.append({"child": 1})
        journal.close()
        own = Journal.create(tmp_path / "child.log")
        os._exit(0 if kept and own.append({"child": 1}) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert journal.append({"parent": 2})
    assert [event_kind(metadata) for metadata, _ in events(journal.path)] == ["parent", "parent"]
    assert [event_kind(metadata) for metadata, _ in events(tmp_path / "child.log")] == ["child"]


def test_limit_says_so_once_and_lets_the_end_through(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "journal.log", limit=1000)
    for _ in range(20):
        journal.append({"a": "x" * 100})
    assert journal.full
    assert not journal.append({"b": 1})  # it would fit, and tell of what the log does not have
    assert journal.append({"dynadiag_end": {}}, past_limit=True)
    kinds = [event_kind(metadata) for metadata, _ in events(journal.path)]
    assert kinds[-2:] == [LIMIT_KIND, "dynadiag_end"]
    assert set(kinds[:-2]) == {"a"}
    assert journal.size == journal.path.stat().st_size < 1300


def test_full_disk_is_noted_not_raised(tmp_path: Path) -> None:
    journal = Journal(Path("/dev/full"), os.open("/dev/full", os.O_WRONLY), None)
    assert not journal.append({"a": 1})
    assert journal.failure is not None
    assert not journal.append({"a": 1})


def test_closed_descriptor_is_never_written_to_again(tmp_path: Path) -> None:
    """A program that closes every descriptor gets the number again for a file of its own."""
    journal = Journal.create(tmp_path / "journal.log")
    journal.append({"a": 1})
    number = journal._descriptor
    assert number is not None
    os.close(number)
    mine = os.open(tmp_path / "mine", os.O_WRONLY | os.O_CREAT)
    os.dup2(mine, number)
    assert not journal.append({"a": 2})
    assert journal.failure == "the program closed the journal"
    journal.close()
    os.fstat(number)  # still open: it is the program's
    os.close(number)
    os.close(mine)
    assert (tmp_path / "mine").read_bytes() == b""


def test_low_descriptors_stay_free(tmp_path: Path) -> None:
    before = os.open(os.devnull, os.O_RDONLY)
    os.close(before)
    journal = Journal.create(tmp_path / "journal.log")
    after = os.open(os.devnull, os.O_RDONLY)
    os.close(after)
    journal.close()
    assert before == after


KILLED = """
import sys
from pathlib import Path
from dynadiag.recording.journal import Journal
journal = Journal.create(Path(sys.argv[1]))
number = 0
while True:
    journal.append({"n": number}, "line\\n" * 200)
    number += 1
    if number % 100 == 0:
        print(number, flush=True)
"""


def test_what_was_appended_survives_a_kill(tmp_path: Path) -> None:
    for attempt in range(5):
        path = tmp_path / f"{attempt}.log"
        with subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            said = [int(process.stdout.readline()) for _ in range(attempt + 1)][-1]
            process.send_signal(signal.SIGKILL)
        parser = LogParser()
        raws = parser.feed(path.read_bytes()) + parser.finish()
        read = [parse_metadata(raw.header or b"") for raw in raws]
        whole = read if read[-1] else read[:-1]  # a write may be cut in the middle of its first line
        assert [metadata and metadata["n"] for metadata in whole] == list(range(len(whole)))
        assert len(whole) >= said


@pytest.mark.parametrize("cut", [0, 1, 30, 200])
def test_the_end_of_a_journal_that_was_cut_short_is_readable(tmp_path: Path, cut: int) -> None:
    journal = Journal.create(tmp_path / "journal.log")
    journal.append({"a": {}}, "line\n" * 100)
    journal.append({"b": {"long": "x" * 500}})
    journal.close()
    os.truncate(journal.path, journal.size - cut)
    end = Journal.reopen(journal.path)
    assert end.append({"dynadiag_exit": {"code": -9}})
    end.close()
    data = journal.path.read_bytes()
    parser = LogParser()
    raws = parser.feed(data) + parser.finish()
    assert raws[-1].header is not None
    assert parse_metadata(raws[-1].header) == {"dynadiag_exit": {"code": -9}}
    assert raws[0].size == len(data.split(b"V", 2)[1]) + 1


def test_imports_nothing_heavy() -> None:
    program = "import sys; import dynadiag.recording.journal; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "sqlite3", "orjson", "zstandard", "dynadiag.recording.records"} & set(out)
