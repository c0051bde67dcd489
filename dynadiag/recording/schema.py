"""The schema of a recording as data. The tables are made from it, and their page by `docs/write_schema.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dynadiag.recording import records
from dynadiag.recording.record_mapping import RecordMapping

APPLICATION_ID = 0x64796E61  # "dyna"; `file` and SQLite's tools show it
# A reader refuses newer versions. 3 added derived data, 4 cache lookups and collectives, 5 dropped links, 6 added the
# facts of breaks, 7 added the values of nodes.
VERSION = 7
BLOCK_SIZE = 1 << 20  # bytes of log in one block; docs/notes/recording-compression.md has the figures


@dataclass(frozen=True, slots=True)
class SqlColumn:
    """One column: its name, its SQL type with constraints, and a one-line description."""

    name: str
    sql: str
    description: str


@dataclass(frozen=True, slots=True)
class SqlTable:
    """One table.

    `record` is the record type of its rows, if any. The statements in `indexes` run once the table is full.

    Recordings of a version before `since` do not have the table.
    """

    name: str
    description: str
    columns: tuple[SqlColumn, ...]
    record: type | None = None
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


def _record_table(
    record: type,
    name: str,
    meaning: str,
    columns: dict[str, str],
    after: tuple[str, ...] = (),
    since: int = 1,
) -> SqlTable:
    """Make the table of a record. Its columns follow from the annotations, their descriptions from `columns`."""
    sql_columns = []
    _MAPPINGS[record] = RecordMapping(record, name)
    for column, kind, optional in _MAPPINGS[record].columns:
        rule = " PRIMARY KEY" if column == "id" else "" if optional else " NOT NULL"
        sql_columns.append(SqlColumn(column, kind + rule, columns.pop(column)))
    if columns:
        raise TypeError(f"table {name} has no columns {sorted(columns)}")
    return SqlTable(name, meaning, tuple(sql_columns), record, indexes=after, since=since)


_COMPILE_ID = 'torch\'s id of the compile: "0/1" is the second one of frame 0; "-" outside any'
_STACK = 'the user\'s frames, outermost first: JSON, [{"file", "line", "function"}]'
_SPAN = {
    "span_file": "the source file",
    "span_line": "the first line, from 1",
    "span_column": "the first column, from 0",
    "span_end_line": "the last line",
    "span_end_column": "the column after the last one",
}
_SOURCE_LINE = {"file": "the source file", "line": "the line in it, from 1"}
_SUMMARY = {
    "summary_shape": "its sizes: JSON",
    "summary_dtype": "its type, such as float32",
    "summary_stride": "its strides in elements: JSON",
    "summary_min": "the smallest finite element; of complex numbers their absolute values count",
    "summary_max": "the largest finite element",
    "summary_mean": "the mean of the finite elements",
    "summary_norm": "the root of the sum of their squares",
    "summary_nan": "how many elements are NaN",
    "summary_inf": "how many are infinite",
    "summary_zero": "how many are zero",
    "summary_hash": "of the bytes in row-major order",
    "summary_samples": "up to 64 elements at fixed positions: JSON",
}

_STORAGE_TABLES = (
    SqlTable(
        "log",
        "One row: the log that the recording was made from.",
        (
            SqlColumn("name", "TEXT NOT NULL", "the name of the file"),
            SqlColumn("size", "INTEGER NOT NULL", "its size in bytes"),
            SqlColumn("block_size", "INTEGER NOT NULL", "bytes of log in each block except the last"),
            SqlColumn("events", "INTEGER NOT NULL", "number of rows of `event`"),
            SqlColumn("unparsed_lines", "INTEGER NOT NULL", "lines that belong to no event; they are kept too"),
        ),
    ),
    SqlTable(
        "block",
        "The log itself, byte for byte, in pieces of the same size: byte N is in block N / block_size.",
        (
            SqlColumn("id", "INTEGER PRIMARY KEY", "from 0, in the order of the log"),
            SqlColumn("data", "BLOB NOT NULL", "one zstd frame with its content size and a checksum"),
        ),
    ),
    SqlTable(
        "event",
        "Where each event of the log lies. The events cover every byte of the log.",
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
        indexes=(
            "CREATE INDEX event_kind ON event (kind)",
            "CREATE INDEX event_name ON event (name) WHERE name IS NOT NULL",
            "CREATE INDEX event_compile ON event (compile_id)",
        ),
    ),
    SqlTable(
        "count",
        "How many events there are of each kind, so that nobody has to count them.",
        (
            SqlColumn("kind", "TEXT PRIMARY KEY NOT NULL", "as in `event`"),
            SqlColumn("events", "INTEGER NOT NULL", "how many"),
        ),
        options=" WITHOUT ROWID",
    ),
    SqlTable(
        "total",
        "How many rows each table of records has, so that a summary reads none of them.",
        (
            SqlColumn("name", "TEXT PRIMARY KEY NOT NULL", "of the table"),
            SqlColumn("records", "INTEGER NOT NULL", "how many"),
        ),
        options=" WITHOUT ROWID",
    ),
    SqlTable(
        "made",
        "Data that was derived from the recording on request: stages of kernels, times.",
        (
            SqlColumn(
                "key", "TEXT PRIMARY KEY NOT NULL", "a hash of the inputs and of the versions that it was derived with"
            ),
            SqlColumn("data", "BLOB NOT NULL", "one zstd frame with its content size: JSON"),
        ),
        since=3,
    ),
)

_TYPED_TABLES = (
    _record_table(
        records.Run,
        "run",
        "One row: the process that was recorded.",
        {
            "target": "what was run, as the user named it",
            "argv": "the program's arguments: JSON list",
            "cwd": "the folder it ran in",
            "torch": "torch's version",
            "python": "Python's version",
            "triton": "Triton's version",
            "device": "the device that the program had",
            "rank": "its rank in a distributed run",
            "pid": "its process id",
            "started": "when it began, seconds since the epoch",
            "seconds": "how long it ran",
            "exit_code": "its own exit code, negative for a signal, NULL where nobody saw it end",
            "complete": "1 where the recorder saw the end of the process",
            "notes": "what could not be seen, in sentences: JSON list",
        },
    ),
    _record_table(
        records.Compile,
        "compile",
        "One compile of one frame, all its attempts together.",
        {
            "id": "from 0, in the order in which they began",
            "compile_id": _COMPILE_ID,
            **_SOURCE_LINE,
            "function": "the function that was compiled",
            "user_stack": _STACK,
            "outcome": '"ok", "break", "error" or "skipped"',
            "attempts": "how many times Dynamo began to trace it",
            "seconds_total": "seconds in all",
            "seconds_dynamo": "of them in Dynamo",
            "seconds_aot": "of them in AOTAutograd and below",
            "seconds_inductor": "of them in Inductor and below",
            "seconds_codegen": "of them in code generation",
            "guards": "how many guards the compiled code has",
            "error": "the type of the failure",
            "reason": "torch's message about it",
            "cache": '"hit", "miss" or "bypass" of the FX graph cache',
        },
    ),
    _record_table(
        records.Graph,
        "graph",
        "A graph at one stage of the pipeline.",
        {
            "id": "from 0",
            "compile_id": _COMPILE_ID,
            "stage": '"dynamo", "pre_grad", "joint", "forward", "backward", "inference", "post_grad" or torch\'s name',
            "nodes": "how many nodes it has",
            "ops": "nodes that compute: neither placeholder, get_attr nor output",
            "event": "the event whose payload is its text",
        },
        after=("CREATE INDEX graph_compile ON graph (compile_id)",),
    ),
    _record_table(
        records.GraphNode,
        "node",
        "The nodes of the graphs that were kept as data.",
        {
            "graph": "the graph's id",
            "position": "from 0, in the order of the graph",
            "name": "the node's name",
            "op": '"placeholder", "get_attr", "call_function", "call_method", "call_module" or "output"',
            "target": "what it calls or gets",
            "inputs": "names of the nodes that it reads: JSON list",
            "arguments": "its arguments: JSON",
            "shape": 'such as "(4, s0)"',
            "dtype": "such as torch.float32",
            "device": "such as cpu",
            **_SPAN,
        },
        after=("CREATE UNIQUE INDEX node_place ON node (graph, position)",),
    ),
    _record_table(
        records.Break,
        "break",
        "A graph break.",
        {
            "id": "from 0, in the order of the log",
            "compile_id": _COMPILE_ID,
            "gb_id": 'its number in torch\'s registry, such as "GB0124"',
            "gb_type": "its type in torch's registry",
            "reason": "torch's message about this one",
            "explanation": "torch's explanation of the type",
            "hints": "what torch advises: JSON list",
            **_SPAN,
            "function": "the function that the place is in",
            "user_stack": _STACK,
            "cause": "the id of the root break that this one follows from",
            "fatal": "1 where torch raised instead of splitting the graph",
        },
    ),
    _record_table(
        records.BreakFacts,
        "break_facts",
        "What torch's message on a graph break says, as values.",
        {
            "id": "the break's id",
            "subject": "what torch could not trace, as it names it",
            "subject_file": "the file that it is in",
            "is_native": "1 where it has no Python code",
            "argument_types": "the types of its arguments: JSON list",
            "has_keywords": "1 where it has keyword arguments",
            "has_types": "1 where torch names the types of the arguments",
            "method": "the method of a logger",
            "operator": 'the operator, such as "aten.nonzero"',
            "lacks_fake": "1 where the operator has no fake kernel",
            "operator_error": "what the operator raised on tensors without data",
            "symbols": "the numbers without a value that a condition needs: JSON list",
            "option": "the option of torch._dynamo.config that the message names",
            "condition": "the constant value of an assertion's condition",
            "within": "the higher-order operator whose function was traced",
            "then": "the type of break at which torch failed to split the graph",
            "exception": "the type of the exception that the traced code raised",
            "message": "its message",
            **{f"raised_at_{key.removeprefix('span_')}": f"{text} of the raise" for key, text in _SPAN.items()},
            **{f"inside_{key.removeprefix('span_')}": f"{text}, in torch or Python" for key, text in _SPAN.items()},
            "inside_function": "the function of torch's or Python's library that breaks",
        },
        since=6,
    ),
    _record_table(
        records.SkippedFrame,
        "skipped_frame",
        "A frame that Dynamo left to Python.",
        {**_SOURCE_LINE, "function": "the frame's function", "reason": "why"},
    ),
    _record_table(
        records.Guard,
        "guard",
        "A condition under which compiled code is used again.",
        {
            "id": "from 0",
            "compile_id": _COMPILE_ID,
            "kind": 'torch\'s name, such as "TENSOR_MATCH"',
            "source": "what it looks at, such as L['x']",
            "expression": "what is checked",
            **_SOURCE_LINE,
        },
        after=("CREATE INDEX guard_compile ON guard (compile_id)",),
    ),
    _record_table(
        records.Recompile,
        "recompile",
        "A frame compiled again.",
        {
            "id": "from 0",
            "compile_id": _COMPILE_ID,
            **_SOURCE_LINE,
            "function": "the function that was compiled again",
            "reasons": "the guards that failed: JSON, objects with the fields of `records.GuardFailure`",
            "limit_reached": "1 where torch gave up compiling the frame",
        },
    ),
    _record_table(
        records.Symbol,
        "symbol",
        "A size that torch made symbolic, or a guard or specialization on one.",
        {
            "compile_id": _COMPILE_ID,
            "name": "such as s0",
            "value": "its value in the traced call",
            "source": "where it comes from, such as L['x'].size()[0]",
            "event": '"created", "guarded", "specialized", "unbacked" or "assumed" (by `draft_export`)',
            "expression": "the guard or the value",
            "user_stack": _STACK,
        },
    ),
    _record_table(
        records.Kernel,
        "kernel",
        "A generated or called kernel.",
        {
            "id": "from 0",
            "compile_id": _COMPILE_ID,
            "name": "its name",
            "language": '"cpp", "triton" or "extern"',
            "event": "the event whose payload holds its source",
        },
        after=("CREATE INDEX kernel_compile ON kernel (compile_id)",),
    ),
    _record_table(
        records.CacheLookup,
        "cache_lookup",
        "One lookup in a cache of compiled code, and its answer.",
        {
            "id": "from 0, in the order in which their compiles ended",
            "compile_id": _COMPILE_ID,
            "graph": '"dynamo", "forward", "backward" or "inference", or the name of a kernel',
            "cache": '"aot_autograd", "fx_graph", "autotune", "cpp", "pgo", "precompile", "triton" or "aotinductor"',
            "outcome": '"hit", "miss", "bypass" or "disabled"',
            "key": "the key that was looked up",
            "reason": "torch's reason for a bypass, or what is known of a miss",
            "seconds": "what a miss or a bypass cost, or what a hit saved",
            "event": "the event whose payload has the components of the key",
        },
        after=("CREATE INDEX cache_lookup_compile ON cache_lookup (compile_id)",),
        since=4,
    ),
    _record_table(
        records.Collective,
        "collective",
        "A collective that the program issued from Python.",
        {
            "id": "from 0, in the order in which they began",
            "op": "as torch.distributed names it, such as all_reduce",
            "group": "torch's name of the process group",
            "number": "which collective of the process it is, from 1",
            "sizes": "of the tensors that this rank contributes",
            "dtypes": "of these tensors",
            "peer": "the other rank of a send or recv, the root of a broadcast",
            "is_async": "1 where the caller goes on before it is done",
            "at": "when it began, seconds since the epoch by this host's clock",
            **_SOURCE_LINE,
            "function": "the function that the line is in",
            "stance": "of torch.compiler.set_stance, where it is not the default",
            "compiles": "how many compiles of this process began before",
        },
        since=4,
    ),
    _record_table(
        records.ValuesCall,
        "values_call",
        "A call of a compiled graph whose values were recorded.",
        {
            "id": "from 0, in the order of the calls",
            "compile_id": _COMPILE_ID,
            "graph": '"forward", "backward" or "inference"',
            "call": "which call of the graph it is, from 0",
            "seed": "a hash of the state of the random number generator before it",
            "seconds": "that the recording of its values took",
            "notes": "what has no values, and why: JSON",
        },
        since=7,
    ),
    _record_table(
        records.NodeValue,
        "node_value",
        "The value of a node in one call, as the graph computes it uncompiled.",
        {
            "id": "from 0, in the order of execution",
            "values_call": "the call",
            "node": "the name of the node",
            "op": "what it calls",
            "inputs": "the names of the nodes that it reads: JSON",
            **_SPAN,
            **_SUMMARY,
            "off_float64": "its error against float64 on the same inputs, relative to the largest element",
            "cause": "what made the first number that is not finite",
        },
        after=("CREATE INDEX node_value_call ON node_value (values_call)",),
        since=7,
    ),
    _record_table(
        records.StoredNodeValue,
        "stored_node_value",
        "The value of a node in one call, as compiled code stored or returned it.",
        {
            "id": "the row of `node_value`",
            "kernel": "the kernel that stored it",
            "off_float64": "its distance from float64",
            "wrong": "1 where rounding does not explain the distance",
            **_SUMMARY,
        },
        since=7,
    ),
    _record_table(
        records.Trial,
        "trial",
        "One trial of a search.",
        {
            "id": "from 0, in the order in which they ended",
            "pid": "the process that ran it",
            "candidate": "what was tried",
            "outcome": "how it ended: JSON",
            "seconds": "how long it took",
        },
    ),
    _record_table(
        records.SourceFile,
        "source",
        "Source as it was when recorded: the program's files, and each file that a node's stack names.",
        {"file": "the file's path", "event": "the event whose payload is its text"},
        after=("CREATE INDEX source_file ON source (file)",),
    ),
)

TABLES = _STORAGE_TABLES + _TYPED_TABLES
RECORD_TABLES: dict[type, SqlTable] = {table.record: table for table in _TYPED_TABLES if table.record is not None}


def mapping_of(record: type) -> RecordMapping[Any]:
    """Return how records of this type are written and read."""
    return _MAPPINGS[record]
