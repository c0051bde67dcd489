"""The typed records of a recording: what torch.compile did, as plain frozen data.

Every record is immutable and holds text, numbers and other records only. Lines are 1-based, columns are
0-based characters, ends are exclusive, and ``None`` stands for what torch did not say. ``file`` is the path
as Python gave it (absolute, or a name in angle brackets such as ``<string>``). ``compile_id`` is torch's own
text: ``"0/1"`` for the second compile of frame 0, ``"!0/0/0"`` under compiled autograd, ``"-"`` outside any. torch
gives ids out again after a reset: in the records the second compile of an id is then ``"0/0#2"``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Frame:
    """One entry of a user stack, outermost first in a stack."""

    file: str
    line: int | None
    function: str


@dataclass(frozen=True, slots=True)
class Span:
    """A place in source. The columns are ``None`` where only the line is known (a foreign log)."""

    file: str | None
    line: int | None
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """The process that was recorded.

    ``exit_code`` is the program's own, negative for a signal, ``None`` where the run was cut short or nobody saw
    it end. ``complete`` says that the recorder saw the end of the process. ``notes`` are sentences on what could
    not be seen, ready to show.
    """

    target: str
    argv: tuple[str, ...]
    cwd: str | None
    torch: str | None
    python: str | None
    triton: str | None
    device: str | None
    rank: int | None
    pid: int | None
    started: float | None  # seconds since the epoch
    seconds: float | None
    exit_code: int | None
    complete: bool
    notes: tuple[str, ...]

    @property
    def is_foreign(self) -> bool:
        """Whether it is of a log made elsewhere, which has no word on how the program ended."""
        return self.python is None and self.exit_code is None and not self.complete


@dataclass(frozen=True, slots=True)
class Event:
    """One event of the structured trace. Its payload is read on request (`Recording.payload`)."""

    index: int  # 0-based, in the order of the log
    kind: str  # "artifact", "dynamo_start", ...; ours begin with "dynadiag_"
    name: str | None  # an artifact's name
    compile_id: str
    attempt: int | None
    payload_size: int  # bytes as they stand in the log, 0 where there is none
    time: str | None  # "1120 06:38:46.123456", as in the log


@dataclass(frozen=True, slots=True)
class Seconds:
    """Where the time of one compile went, in seconds. The parts are nested: total >= dynamo + aot, aot >= inductor."""

    total: float | None = None
    dynamo: float | None = None
    aot: float | None = None
    inductor: float | None = None
    codegen: float | None = None


@dataclass(frozen=True, slots=True)
class Compile:
    """One compile of one frame (all its attempts together)."""

    index: int
    compile_id: str
    file: str | None
    line: int | None
    function: str
    user_stack: tuple[Frame, ...]
    outcome: str  # "ok" | "break" | "error" | "skipped"
    attempts: int
    seconds: Seconds
    guards: int
    error: str | None  # the type of the failure, where there was one
    reason: str | None  # torch's own words on it
    cache: str | None  # "hit", "miss", "bypass" of the FX graph cache


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph at one stage of the pipeline. Its text and nodes are read on request."""

    index: int
    compile_id: str
    stage: str  # "dynamo" | "pre_grad" | "joint" | "forward" | "backward" | "inference" | "post_grad" | torch's name
    nodes: int
    ops: int  # nodes that compute: neither placeholder, get_attr nor output
    event: int  # the event whose payload is the text


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a graph that was kept as data."""

    position: int
    name: str
    op: str  # "placeholder" | "get_attr" | "call_function" | "call_method" | "call_module" | "output"
    target: str
    inputs: tuple[str, ...]  # names of the nodes it reads
    arguments: str  # JSON, see capture.graphs
    shape: str | None  # "(4, s0)"
    dtype: str | None
    device: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node with the graph that it belongs to: what the digest hands to the store."""

    graph: int
    node: Node


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of the user's source, as it was when recorded: the payload of an event."""

    file: str
    event: int


@dataclass(frozen=True, slots=True)
class Break:
    """A graph break. ``cause`` is the index of the root break that this one is a consequence of."""

    index: int
    compile_id: str
    gb_id: str | None
    gb_type: str
    reason: str
    explanation: str
    hints: tuple[str, ...]
    span: Span
    function: str
    user_stack: tuple[Frame, ...]
    cause: int | None
    fatal: bool  # torch raised instead of splitting the graph (fullgraph=True)


@dataclass(frozen=True, slots=True)
class SkippedFrame:
    """A frame that Dynamo left to Python, and why."""

    file: str
    line: int | None
    function: str
    reason: str


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition under which compiled code is used again."""

    index: int
    compile_id: str
    kind: str  # "TENSOR_MATCH", ...
    source: str  # "L['x']"
    expression: str
    file: str | None
    line: int | None


@dataclass(frozen=True, slots=True)
class GuardFailure:
    """One guard that failed and so made a recompile. ``was`` and ``now`` are short texts of the two values."""

    guard: str
    source: str | None
    was: str | None
    now: str | None
    against: str  # the compile id of the cached entry that it belongs to
    file: str | None
    line: int | None


@dataclass(frozen=True, slots=True)
class Recompile:
    """A frame compiled again. ``reasons`` is empty where torch recorded none."""

    index: int
    compile_id: str
    file: str | None
    line: int | None
    function: str
    reasons: tuple[GuardFailure, ...]
    limit_reached: bool  # torch gave up compiling this frame


@dataclass(frozen=True, slots=True)
class Symbol:
    """A size that torch made symbolic (``s0``), or a guard or specialization on one."""

    compile_id: str
    name: str
    value: str | None
    source: str | None
    event: str  # "created" | "guarded" | "specialized" | "unbacked"
    expression: str | None
    user_stack: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A generated or called kernel."""

    index: int
    compile_id: str
    name: str
    language: str  # "cpp" | "triton" | "extern"
    event: int | None  # the event whose payload holds the source (the generated wrapper module)


@dataclass(frozen=True, slots=True)
class Link:
    """A line of one document, and a line of another that it comes from or, read the other way, becomes.

    The documents of a generated module: the user's "source", "dynamo"'s graph, the "graph" that was lowered, the
    "module" itself. Without a ``to_line`` nobody knows a line of ``to_document`` that belongs to it: no mapping.
    """

    compile_id: str
    module: int  # the event with the generated module
    document: str  # "module" | "graph" | "dynamo"
    event: int  # the event whose payload is the document
    line: int
    name: str  # the kernel or library call of a line of the module, the node of a line of a graph
    role: str  # "compute" | "load" | "store" | "constant" | "call" in a module; "node"
    to_document: str  # "graph" | "dynamo" | "source", and "module" where a node has no kernel
    to_event: int | None
    to_line: int | None
    to_name: str | None  # the node, the source file
    how: str  # "scheduler" | "comment" | "dataflow" | "around" | "aligned" | "graph" | "none"


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial of a search: a candidate, run by itself, and how it ended. ``outcome`` is JSON."""

    index: int
    pid: int | None
    candidate: str
    outcome: str
    seconds: float
