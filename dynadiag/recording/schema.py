"""The schema of a recording as data. The tables are made from it, and their page by `docs/write_schema.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dynadiag.recording import records
from dynadiag.recording.record_mapping import RecordMapping

APPLICATION_ID = 0x64796E61  # "dyna"; `file` and SQLite's tools show it
# A reader refuses newer versions. 3 added derived data, 4 cache lookups and collectives, 5 dropped links, 6 added the
# facts of breaks, 7 added the values of nodes, 8 the facts of nodes.
VERSION = 8
BLOCK_SIZE = 1 << 20  # bytes of log in one block; docs/notes/recording-compression.md has the figures


@dataclass(frozen=True, slots=True)
class SqlColumn:
    """One column: its name, its SQL type with constraints, and a one-line description if it is of no record."""

    name: str
    sql: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class SqlTable:
    """One table.

    `record` is the record type of its rows, if any: its docstring and the comments at its fields describe the table.
    The statements in `indexes` run once the table is full. Recordings of a version before `since` do not have it.
    """

    name: str
    columns: tuple[SqlColumn, ...]
    record: type | None = None
    description: str = ""
    options: str = ""
    indexes: tuple[str, ...] = ()
    since: int = 1

    def ddl(self) -> str:
        """Return the statement that creates the table."""
        columns = ", ".join(f'"{column.name}" {column.sql}' for column in self.columns)
        return f'CREATE TABLE "{self.name}" ({columns}){self.options}'

    def insert(self, verb: str = "INSERT") -> str:
        """Return the statement that adds a row."""
        marks = ", ".join("?" * len(self.columns))
        return f'{verb} INTO "{self.name}" VALUES ({marks})'

    def select(self, rest: str = "") -> str:
        """Return the statement that reads rows."""
        columns = ", ".join(f'"{column.name}"' for column in self.columns)
        return f'SELECT {columns} FROM "{self.name}" {rest}'


_MAPPINGS: dict[type, RecordMapping[Any]] = {}  # filled with the tables


def _record_table(record: type, name: str, *indexes: str, since: int = 1) -> SqlTable:
    """Make the table of a record. Its columns follow from the annotations."""
    _MAPPINGS[record] = RecordMapping(record, name)
    columns = []
    for column, kind, optional in _MAPPINGS[record].columns:
        rule = " PRIMARY KEY" if column == "id" else "" if optional else " NOT NULL"
        columns.append(SqlColumn(column, kind + rule))
    return SqlTable(name, tuple(columns), record, indexes=indexes, since=since)


_COMPILE_ID = 'torch\'s id of the compile: "0/1" is the second one of frame 0; "-" outside any'
_STORAGE_TABLES = (
    SqlTable(
        "log",
        (
            SqlColumn("name", "TEXT NOT NULL", "the name of the file"),
            SqlColumn("size", "INTEGER NOT NULL", "its size in bytes"),
            SqlColumn("block_size", "INTEGER NOT NULL", "bytes of log in each block except the last"),
            SqlColumn("events", "INTEGER NOT NULL", "number of rows of `event`"),
            SqlColumn("unparsed_lines", "INTEGER NOT NULL", "lines that belong to no event; they are kept too"),
        ),
        description="One row: the log that the recording was made from.",
    ),
    SqlTable(
        "block",
        (
            SqlColumn("id", "INTEGER PRIMARY KEY", "from 0, in the order of the log"),
            SqlColumn("data", "BLOB NOT NULL", "one zstd frame with its content size and a checksum"),
        ),
        description="The log itself, byte for byte, in pieces of the same size: byte N is in block N / block_size.",
    ),
    SqlTable(
        "event",
        (
            SqlColumn("id", "INTEGER PRIMARY KEY", "from 0, in the order of the log"),
            SqlColumn(
                "kind", "TEXT NOT NULL", 'torch\'s name of the kind, such as "artifact"; ours begin with dynadiag_'
            ),
            SqlColumn("name", "TEXT", "the name in the metadata, such as an artifact's"),
            SqlColumn("compile_id", "TEXT NOT NULL", _COMPILE_ID),
            SqlColumn("attempt", "INTEGER", "the attempt within the compile, from 0"),
            SqlColumn("time", "TEXT", '"MMDD HH:MM:SS.micros", local time, as the log has it'),
            SqlColumn("start", "INTEGER NOT NULL", "offset of its header line in the log"),
            SqlColumn("header_size", "INTEGER NOT NULL", "bytes of the header line with its newline"),
            SqlColumn("payload_size", "INTEGER NOT NULL", "bytes of the payload as it stands in the log"),
        ),
        description="Where each event of the log lies. The events cover every byte of the log.",
        indexes=(
            "CREATE INDEX event_kind ON event (kind)",
            "CREATE INDEX event_name ON event (name) WHERE name IS NOT NULL",
            "CREATE INDEX event_compile ON event (compile_id)",
        ),
    ),
    SqlTable(
        "count",
        (
            SqlColumn("kind", "TEXT PRIMARY KEY NOT NULL", "as in `event`"),
            SqlColumn("events", "INTEGER NOT NULL", "how many"),
        ),
        description="How many events there are of each kind, so that nobody has to count them.",
        options=" WITHOUT ROWID",
    ),
    SqlTable(
        "total",
        (
            SqlColumn("name", "TEXT PRIMARY KEY NOT NULL", "of the table"),
            SqlColumn("records", "INTEGER NOT NULL", "how many"),
        ),
        description="How many rows each table of records has, so that a summary reads none of them.",
        options=" WITHOUT ROWID",
    ),
    SqlTable(
        "made",
        (
            SqlColumn(
                "key", "TEXT PRIMARY KEY NOT NULL", "a hash of the inputs and of the versions that it was derived with"
            ),
            SqlColumn("data", "BLOB NOT NULL", "one zstd frame with its content size: JSON"),
        ),
        description="Data that was derived from the recording on request: stages of kernels, times.",
        since=3,
    ),
)

_TYPED_TABLES = (
    _record_table(records.Run, "run"),
    _record_table(records.Compile, "compile"),
    _record_table(records.Graph, "graph", "CREATE INDEX graph_compile ON graph (compile_id)"),
    _record_table(records.GraphNode, "node", "CREATE UNIQUE INDEX node_place ON node (graph, position)"),
    _record_table(records.Break, "break"),
    _record_table(records.BreakFacts, "break_facts", since=6),
    _record_table(records.SkippedFrame, "skipped_frame"),
    _record_table(records.Guard, "guard", "CREATE INDEX guard_compile ON guard (compile_id)"),
    _record_table(records.Recompile, "recompile"),
    _record_table(records.Symbol, "symbol"),
    _record_table(records.Kernel, "kernel", "CREATE INDEX kernel_compile ON kernel (compile_id)"),
    _record_table(
        records.CacheLookup, "cache_lookup", "CREATE INDEX cache_lookup_compile ON cache_lookup (compile_id)", since=4
    ),
    _record_table(records.Collective, "collective", since=4),
    _record_table(records.ValuesCall, "values_call", since=7),
    _record_table(records.NodeValue, "node_value", "CREATE INDEX node_value_call ON node_value (values_call)", since=7),
    _record_table(records.StoredNodeValue, "stored_node_value", since=7),
    _record_table(records.NodeFacts, "node_facts", since=8),
    _record_table(records.Trial, "trial"),
    _record_table(records.SourceFile, "source", "CREATE INDEX source_file ON source (file)"),
)
TABLES = _STORAGE_TABLES + _TYPED_TABLES
RECORD_TABLES: dict[type, SqlTable] = {table.record: table for table in _TYPED_TABLES if table.record is not None}


def mapping_of(record: type) -> RecordMapping[Any]:
    """Return how records of this type are written and read."""
    return _MAPPINGS[record]
