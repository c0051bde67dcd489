"""The reader: typed, lazy, and unharmed by what a stranger put into the file."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import zstandard

from dynadiag.errors import UnreadableInput
from dynadiag.recording import schema
from dynadiag.recording.import_export import import_log
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Break, Compile, Event, Graph, GraphNode, Guard, Kernel, Run
from dynadiag.recording.sql import run_query
from tests.commands.build import recording as hand_made_recording
from tests.recording.read_all import read_all
from tests.tui import build


def event(number: int, payload: bytes = b"") -> bytes:
    """An event of a log, with a payload or without."""
    header = b'V1120 06:38:46.123456 77 a.py:1] {"artifact": {"name": "n%d"}, ' % (number % 3)
    header += b'"frame_id": %d, "frame_compile_id": 0, "attempt": 1}\n' % (number % 5)
    return header + (b"\t" + payload.replace(b"\n", b"\n\t") + b"\n" if payload else b"")


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A recording of ten small events, noise between them, and one that spans blocks."""
    data = b"".join(event(number, b"payload %d\n" % number) for number in range(10)) + b"printed\n"
    data += event(10, b"x" * 100 + b"\n" + b"y" * (2 * schema.BLOCK_SIZE)) + event(11)
    (tmp_path / "a.log").write_bytes(data)
    import_log(tmp_path / "a.log", tmp_path / "a.dynadiag")
    return tmp_path / "a.dynadiag"


def change(recording: Path, *statements: str) -> None:
    """Do to a recording what a stranger may have done."""
    with sqlite3.connect(recording) as database:
        database.execute("PRAGMA trusted_schema = OFF")
        for statement in statements:
            database.execute(statement)
    database.close()


def test_a_query_has_its_columns_and_no_more_rows_than_asked_for(recording: Path) -> None:
    with Recording(recording) as opened:
        found = run_query(opened._database, "SELECT id, kind FROM event ORDER BY id", limit=2)
        assert found == (("id", "kind"), [(0, "artifact"), (1, "artifact")])
        assert len(run_query(opened._database, "SELECT id FROM event").rows) == 13


def test_a_query_that_begins_as_the_recording_is_closed_ends(recording: Path) -> None:
    """Closing interrupts what runs, and not what has yet to begin."""
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    with Recording(recording) as opened:
        opened._database.is_closed = True
        with pytest.raises(UnreadableInput, match="closed while it was read"):
            run_query(opened._database, endless)


def test_events_are_found_by_kind_name_and_compile(recording: Path) -> None:
    with Recording(recording) as opened:
        everything = list(opened.events())
        assert [one.index for one in everything] == list(range(13))
        assert opened.event(0) == Event(0, "artifact", "n0", "0/0", 1, 13, "1120 06:38:46.123456")
        assert [one.index for one in opened.events(kind="dynadiag_unparsed")] == [10]
        assert [one.index for one in opened.events(name="n1")] == [1, 4, 7, 11]
        for kind in (None, "artifact", "none"):
            for name in (None, "n1", "none"):
                for compile_id in (None, "1/0", "none"):
                    found = list(opened.events(kind, name, compile_id))
                    assert found == [
                        one
                        for one in everything
                        if kind in (None, one.kind)
                        and name in (None, one.name)
                        and compile_id in (None, one.compile_id)
                    ]
        assert list(opened.events(start=3, limit=4)) == everything[3:7]
        assert list(opened.events(kind="artifact", start=9)) == everything[9:10] + everything[11:]


def test_an_event_is_found_by_any_byte_of_it(recording: Path) -> None:
    with Recording(recording) as opened:
        everything = opened.event_spans(0, 100)
        assert [one.event for one in everything] == list(opened.events())
        assert everything[0].start == 0
        assert [one.end for one in everything] == [*[one.start for one in everything[1:]], opened.log_size]
        for one in everything:
            for offset in (one.start, one.payload_start, one.end - 1):
                assert opened.event_spans(offset, 1) == [one]


def test_a_table_is_read_in_pages(torch_recording: Path) -> None:
    with Recording(torch_recording) as opened:
        every = opened.guards()
        pages = [opened.page(Guard, start, 3) for start in range(0, len(every), 3)]
    assert len(every) > 3
    assert tuple(one for page in pages for one in page) == every


def test_records_of_each_type_are_read_in_the_order_of_their_table(tmp_path: Path) -> None:
    with Recording(hand_made_recording(tmp_path / "a.dynadiag")) as opened:
        assert opened.records(Break) == opened.breaks() != ()
        found: dict[type, tuple[object, ...]] = {record: opened.records(record) for record in schema.RECORD_TABLES}
    assert all(isinstance(one, record) for record, records in found.items() for one in records)
    assert {Break, Compile, Graph, GraphNode, Guard, Kernel, Run} <= {record for record in found if found[record]}


def test_payloads_within_and_across_blocks(recording: Path) -> None:
    with Recording(recording) as opened:
        assert opened.payload(3) == "payload 3\n"
        assert opened.payload(10) == "printed"
        assert opened.metadata(10) == {}
        assert opened.payload(11) == "x" * 100 + "\n" + "y" * (2 * schema.BLOCK_SIZE)
        assert opened.payload(12) == ""
        assert opened.metadata(3)["artifact"] == {"name": "n0"}
        with pytest.raises(UnreadableInput, match="event 13"):
            opened.payload(13)


def test_source_is_the_payload_of_its_event(tmp_path: Path) -> None:
    header = b'V1120 06:38:46.123456 77 a.py:1] {"dynadiag_source": {"file": "/a b.py"}}\n'
    (tmp_path / "a.log").write_bytes(header + b"\tx = 1\n\t\n\t\ty\n")
    import_log(tmp_path / "a.log", tmp_path / "a.dynadiag")
    with Recording(tmp_path / "a.dynadiag") as opened:
        assert opened.source("/a b.py") == "x = 1\n\n\ty"
        assert opened.source("/b.py") is None


def test_threads_may_share_a_recording(recording: Path) -> None:
    wrong: list[object] = []
    with Recording(recording) as opened:

        def read() -> None:
            for _ in range(20):
                for one in opened.events():
                    if 0 <= one.index < 10 and opened.payload(one.index) != f"payload {one.index}\n":
                        wrong.append(one)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_reading_leaves_the_folder_alone(recording: Path) -> None:
    recording.chmod(0o444)
    before = {path.name: path.read_bytes() for path in recording.parent.iterdir()}
    read_all(recording)
    assert {path.name: path.read_bytes() for path in recording.parent.iterdir()} == before


def test_odd_file_names(recording: Path) -> None:
    for name in ("a?mode=rwc#%41.dynadiag", "spaced out é.dynadiag", "\udcff.dynadiag"):
        other = recording.with_name(name)
        shutil.copy(recording, other)
        assert read_all(other) == 13


def bytes_read(path: Path) -> int:
    """How many bytes opening a recording, its run and its counts take from the file."""
    marker = "rchar"

    def rchar() -> int:
        lines = Path("/proc/self/io").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(marker))

    rchar()
    before = rchar()
    with Recording(path) as opened:
        assert opened.run is not None
        assert opened.counts()
    return rchar() - before


def test_opening_reads_the_same_whatever_the_size(tmp_path: Path) -> None:
    noise = random.Random(0)
    read, sizes = [], []
    for count in (10, 1000, 20_000):
        log, output = tmp_path / "a.log", tmp_path / f"{count}.dynadiag"
        log.write_bytes(b"".join(event(number, noise.randbytes(150).hex().encode()) for number in range(count)))
        import_log(log, output)
        bytes_read(output)
        read.append(bytes_read(output))
        sizes.append(output.stat().st_size)
    assert sizes[2] > 10 * sizes[0]
    assert max(read) - min(read) <= 4 * 8192, (read, sizes)


def test_one_payload_reads_its_blocks_only(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"".join(event(number, b"z" * 10_000) for number in range(2000)))
    import_log(tmp_path / "a.log", tmp_path / "a.dynadiag")
    with Recording(tmp_path / "a.dynadiag") as opened:
        statements: list[str] = []
        opened._database.connection.set_trace_callback(statements.append)
        assert opened.payload(1500) == "z" * 10_000
        blocks = [statement for statement in statements if "FROM block" in statement]
        assert 1 <= len(blocks) <= 2


# Files from a stranger


def test_what_is_no_recording(tmp_path: Path, recording: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_text("hello")
    (tmp_path / "magic").write_bytes(b"SQLite format 3\0")
    sqlite3.connect(tmp_path / "other").execute("CREATE TABLE a (b)").connection.close()
    for name in ("empty", "text", "magic", "other", "none", "."):
        with pytest.raises(UnreadableInput) as caught:
            read_all(tmp_path / name)
        assert "\n" not in str(caught.value)
        assert str(tmp_path / name) in str(caught.value)


def test_newer_schema_says_upgrade(recording: Path) -> None:
    change(recording, f"PRAGMA user_version = {schema.VERSION + 1}")
    with pytest.raises(UnreadableInput, match=r"newer dynadiag .* upgrade"):
        Recording(recording)


@pytest.mark.parametrize(
    ("version", "statements"),
    [
        (4, ['CREATE TABLE "link" ("compile_id" TEXT NOT NULL)', "CREATE INDEX link_from ON link (compile_id)"]),
        (3, ["DROP TABLE cache_lookup", "DROP TABLE collective"]),
        (1, ["DROP TABLE cache_lookup", "DROP TABLE collective", "DROP TABLE made"]),
    ],
)
def test_an_older_schema_is_read(recording: Path, version: int, statements: list[str]) -> None:
    before = read_all(recording)
    change(recording, *statements, f"PRAGMA user_version = {version}")
    with Recording(recording) as opened:
        assert opened.cache_lookups() == ()
        assert opened.derived("times") is None
    assert read_all(recording) <= before


ENDLESS = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT 'a' kind, n events FROM c"
HUGE = "kind TEXT, events INTEGER GENERATED ALWAYS AS (length(hex(zeroblob(1000000000))))"


@pytest.mark.parametrize(
    "statements",
    [
        ("CREATE VIEW v AS SELECT 1",),
        ("CREATE TRIGGER t AFTER INSERT ON event BEGIN DELETE FROM event; END",),
        ("DROP TABLE count", f"CREATE VIEW count AS {ENDLESS}"),
        ("DROP TABLE source", "CREATE VIRTUAL TABLE source USING fts5(file, event)"),
        ("DROP TABLE count", f"CREATE TABLE count ({HUGE})"),
        ("DROP TABLE run",),
        ("ALTER TABLE run ADD COLUMN more",),
    ],
)
def test_a_schema_that_is_not_ours_is_refused(recording: Path, statements: tuple[str, ...]) -> None:
    change(recording, *statements)
    with pytest.raises(UnreadableInput, match="schema differs"):
        Recording(recording)


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("UPDATE run SET argv = 'no'", "not JSON"),
        ("UPDATE run SET pid = 'text'", "int expected"),
        ("UPDATE run SET target = x'ff'", "str expected"),
        ("UPDATE run SET target = CAST(x'ff1b5b' AS TEXT)", "decode"),
        ("INSERT INTO run SELECT * FROM run", "2 rows"),
        ("DELETE FROM run", "0 rows"),
        ("DELETE FROM log", "0 rows"),
        ("UPDATE log SET block_size = 0", "blocks of 0"),
        ("UPDATE log SET block_size = 1 << 40", "blocks of"),
        ("UPDATE log SET size = -1", "-1 bytes"),
        ("UPDATE log SET size = 1 << 60", "block"),
        ("UPDATE event SET start = -5", "outside"),
        ("UPDATE event SET payload_size = 1 << 62", "outside"),
        ("UPDATE event SET payload_size = 'x'", "int expected"),
        ("UPDATE event SET time = x'00'", "str expected"),
        ("UPDATE event SET kind = x'00'", "str expected"),
        ("UPDATE block SET data = 'text'", "bytes expected"),
        ("UPDATE block SET data = zeroblob(1000)", "content size"),
        ("DELETE FROM block WHERE id = 1", "block 1"),
        ("UPDATE count SET events = 'x'", "int expected"),
    ],
)
def test_values_that_are_not_ours(recording: Path, statement: str, why: str) -> None:
    change(recording, statement)
    with pytest.raises(UnreadableInput, match=why) as caught:
        read_all(recording)
    assert str(caught.value).isprintable()


def bomb(size: int, claimed: int | None) -> bytes:
    """A zstd frame that decompresses to `size` bytes; what it claims to hold may differ."""
    parts = zstandard.ZstdCompressor(write_content_size=claimed is not None).compressobj(size=claimed or -1)
    return b"".join(parts.compress(bytes(1 << 20)) for _ in range(size >> 20)) + parts.flush()


@pytest.mark.parametrize("claimed", [None, 1 << 30])
def test_a_bomb_does_not_go_off(recording: Path, claimed: int | None) -> None:
    data = bomb(1 << 30, claimed)
    with sqlite3.connect(recording) as database:
        database.execute("UPDATE block SET data = ?", (data,))
    database.close()
    with Recording(recording) as opened, pytest.raises(UnreadableInput, match="does not hold"):
        opened.payload(0)


def test_a_payload_of_many_bombs_is_refused(recording: Path) -> None:
    """Each block is small; an event that claims to span very many of them is not read."""
    change(recording, "UPDATE log SET size = 1 << 40", "UPDATE event SET payload_size = 1 << 39 WHERE id = 1")
    with Recording(recording) as opened, pytest.raises(UnreadableInput, match="more than can be shown"):
        opened.payload(1)


def test_endless_value_is_refused(recording: Path) -> None:
    change(recording, "UPDATE run SET target = CAST(zeroblob(17 << 20) AS TEXT)")
    with pytest.raises(UnreadableInput, match="too big"):
        Recording(recording)


def survives(path: Path) -> bool:
    """Read everything; False where the file was refused, in one line."""
    try:
        read_all(path)
    except UnreadableInput as error:
        refused = str(error)
    else:
        return True
    assert refused.isprintable()
    return False


def test_truncated_anywhere(torch_recording: Path, tmp_path: Path) -> None:
    whole = torch_recording.read_bytes()
    path = tmp_path / "cut.dynadiag"
    chance = random.Random(1)
    for size in sorted({*range(0, 300, 7), *(chance.randrange(len(whole)) for _ in range(200)), len(whole) - 1}):
        path.write_bytes(whole[:size])
        assert not survives(path), size


@pytest.mark.parametrize("cases", [300, pytest.param(2000, marks=pytest.mark.slow)])
def test_bits_flipped_anywhere(cases: int, torch_recording: Path, tmp_path: Path) -> None:
    """Each case reads as something or is refused. The seeds are fixed: a failure can be seen again."""
    whole = torch_recording.read_bytes()
    path = tmp_path / "flipped.dynadiag"
    read = 0
    for seed in range(cases):
        chance = random.Random(seed)
        data = bytearray(whole)
        reach = chance.choice((100, 9000, len(data)))  # the header, the schema, anywhere
        for _ in range(chance.choice((1, 1, 4, 64))):
            data[chance.randrange(reach)] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        read += survives(path)
    assert 0 < read < cases


_CLOSED_WHILE_IT_IS_READ = """
import sys, threading
from pathlib import Path
from dynadiag.errors import UnreadableInput
from dynadiag.recording.opening import open_recording

def read():
    try:
        while True:
            began.set()
            list(recording.events()), recording.compiles(), recording.guards()
    except UnreadableInput as error:
        messages.add(str(error).rpartition(": ")[2])

messages = set()
for _ in range(150):
    recording, began = open_recording(Path(sys.argv[1])), threading.Event()
    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    began.wait()
    recording.close()
    for reader in readers:
        reader.join()
print(*messages)
"""


def test_a_recording_is_closed_while_threads_read_it(tmp_path: Path) -> None:
    """SQLite's objects were freed below the reader, which ended the process: the browser closes what it still reads."""
    path = build.recording(tmp_path, build.program())
    command = [sys.executable, "-c", _CLOSED_WHILE_IT_IS_READ, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert (done.returncode, done.stdout, done.stderr) == (0, "closed while it was read\n", "")
