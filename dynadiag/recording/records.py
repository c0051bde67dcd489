"""The typed records of a recording: what torch.compile did, as frozen data.

Records hold text, numbers and other records only. Lines are 1-based, columns are 0-based characters, ends are
exclusive. ``None`` means that torch did not say. ``file`` is the path as Python gave it (absolute, or a name in angle
brackets such as ``<string>``). ``compile_id`` is torch's own text: ``"0/1"`` for the second compile of frame 0,
``"!0/0/0"`` under compiled autograd, ``"-"`` outside any compile. torch reuses ids after a reset: the second compile of
an id is recorded as ``"0/0#2"``. What belongs to a call of ``torch.export`` has ``"export/0"``: torch has no id of it.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import TypeAlias

# Notes on runs. The first one does not hold while the program still runs.
CUT_SHORT = "the recording ends before the program did: it was cut short"
UNCOMPILED_NOTE = "this is the uncompiled variant of a comparison: nothing was to be compiled"
EXPORT = "export/"  # what the id of an export begins with, in place of a compile's
TRITON_TEXT_STAGES = ("ttir", "ttgir", "llir", "ptx", "amdgcn")  # the stages of a kernel that Triton keeps as text
_ENDINGS = {
    "SIGINT": "interrupted",
    "SIGTERM": "ended",
    "SIGKILL": "killed",
    "SIGSEGV": "crashed",
    "SIGABRT": "aborted",
}


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a user stack. Stacks are outermost first."""

    file: str
    line: int | None
    function: str


@dataclass(frozen=True, slots=True)
class Span:
    """A range of source. The columns are ``None`` when only the line is known (a foreign log)."""

    file: str | None
    line: int | None
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """The process that was recorded.

    ``exit_code`` is the program's own, negative for a signal, ``None`` when the run was cut short or nobody saw it end.
    ``complete`` says whether the recorder saw the end of the process. ``notes`` are complete sentences about what the
    recording lacks.
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
        """Whether the log was made without our recorder. Such a log does not say how the program ended."""
        return self.python is None and self.exit_code is None and not self.complete


@dataclass(frozen=True, slots=True)
class Event:
    """One event of the structured trace. Its payload is read on request (`Recording.payload`)."""

    index: int  # 0-based, in log order
    kind: str  # "artifact", "dynamo_start", ...; our own begin with "dynadiag_"
    name: str | None  # an artifact's name
    compile_id: str
    attempt: int | None
    payload_size: int  # bytes in the log, 0 without a payload
    time: str | None  # "1120 06:38:46.123456", as in the log


@dataclass(frozen=True, slots=True)
class Seconds:
    """The time of one compile, in seconds. The parts are nested: total >= dynamo + aot, aot >= inductor."""

    total: float | None = None
    dynamo: float | None = None
    aot: float | None = None
    inductor: float | None = None
    codegen: float | None = None


@dataclass(frozen=True, slots=True)
class Compile:
    """One compile of one frame, with all its attempts."""

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
    error: str | None  # type of the failure, if it failed
    reason: str | None  # torch's message for it
    cache: str | None  # "hit", "miss", "bypass" of the FX graph cache


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph at one stage of the pipeline. Its text and nodes are read on request."""

    index: int
    compile_id: str
    stage: str  # "dynamo" | "pre_grad" | "joint" | "forward" | "backward" | "inference" | "post_grad" | torch's name
    nodes: int
    ops: int  # nodes that compute: not placeholder, get_attr or output
    event: int  # the event whose payload is the text


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a graph that was recorded as data."""

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
    """A node and the index of its graph, as the digest yields it."""

    graph: int
    node: Node


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A source file as it was when recorded: the program's, or one that a node's stack names. The event has it."""

    file: str
    event: int


@dataclass(frozen=True, slots=True)
class BreakFacts:
    """What torch's message on a break says, as values, and what the recorder saw. None where neither says it.

    ``subject`` is what torch could not trace (``print``, ``time.sleep``, ``Logger.info``), ``is_native`` says that it
    has no Python code. ``argument_types`` are those of a builtin, known where ``has_types``. ``symbols`` are numbers
    without a value that a condition needs. ``condition`` is the constant value of an assertion's. ``within`` is the
    higher-order operator whose function was traced, ``then`` the type of break at which torch failed to split the
    graph. ``exception`` is what the traced code raised, at ``raised_at``. ``inside`` is the line in torch or Python's
    library, where the user's line only calls the code that breaks.
    """

    index: int = 0  # of the break
    subject: str | None = None
    subject_file: str | None = None
    is_native: bool = False
    argument_types: tuple[str, ...] = ()
    has_keywords: bool = False
    has_types: bool = False
    method: str | None = None  # of a logger
    operator: str | None = None  # "aten.nonzero", "mine::twice", "numpy.median"
    lacks_fake: bool = False  # the operator has no fake kernel
    operator_error: str | None = None  # what it raised on tensors without data: "TypeError: ..."
    symbols: tuple[str, ...] = ()
    option: str | None = None  # of torch._dynamo.config, which the message names
    condition: str | None = None
    within: str | None = None
    then: str | None = None
    exception: str | None = None
    message: str | None = None
    raised_at: Span = Span(None, None)
    inside: Span = Span(None, None)
    inside_function: str | None = None


@dataclass(frozen=True, slots=True)
class Break:
    """A graph break. ``cause`` is the index of the root break that it follows from.

    ``reason``, ``explanation`` and ``hints`` are torch's words. ``facts`` are their own table.
    """

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
    fatal: bool  # torch raised an exception instead of splitting the graph (fullgraph=True)
    facts: BreakFacts = field(default=BreakFacts(), metadata={"table": False})


@dataclass(frozen=True, slots=True)
class SkippedFrame:
    """A frame that Dynamo left to Python, and the reason."""

    file: str
    line: int | None
    function: str
    reason: str


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition under which compiled code is reused."""

    index: int
    compile_id: str
    kind: str  # "TENSOR_MATCH", ...
    source: str  # "L['x']"
    expression: str
    file: str | None
    line: int | None


# Where in the program the value of a guard is kept. Of an "attribute" the holder is not known, of the others it is.
BASES = (
    "argument",
    "attribute",
    "module attribute",
    "object attribute",
    "parameter",
    "optimizer",
    "closure",
    "default",
    "global",
    "before break",
    "mode",
)
# What of it changed. "type" has two texts that are equal where a class of the same name was defined anew.
PARTS = (
    "size",
    "stride",
    "rank",
    "dtype",
    "device",
    "requires_grad",
    "dispatch keys",
    "type",
    "identity",
    "value",
    "length",
    "keys",
    "membership",
    "presence",
    "own attribute",
    "freed",
    "alias",
    "shape",
    "state",
    "backend",
    "race",
    "other",
)


@dataclass(frozen=True, slots=True)
class GuardFailure:
    """A guard that failed and caused a recompile. What is not known is None.

    ``was`` and ``now`` are short texts of the two values, ``was_type`` and ``now_type`` the names of their types.
    ``subject`` is the source without the part of a tensor that changed. ``index`` is the dimension of a size or a
    stride, the key of a membership, the name of a global state, and of a shape expression what it demands: "number"
    (one value), "multiple", "above one" (neither 0 nor 1), "together" (of several sizes), "range". ``terms`` are the
    sources of a shape expression, the two sources of an alias, the device of a state of autocast. ``owner_was`` and
    ``owner_now`` are the numbers of the objects that the local was, such as ``self``, which the source begins with:
    each object of a run has a number of its own. ``mark`` is what the program has said of a size: "dynamic" or
    "static", or "parameter" where torch keeps it a constant since the tensor is a parameter; ``dynamic`` is what it has
    said of all that changes: "automatic" (torch makes it a symbol from the first change on), "always"
    (``dynamic=True``) or "never" (``dynamic=False``).
    """

    guard: str
    source: str | None
    was: str | None
    now: str | None
    against: str  # compile id of the cache entry that the guard belongs to
    file: str | None
    line: int | None
    kind: str | None = None  # torch's: "TENSOR_MATCH"
    part: str = "other"  # of PARTS
    subject: str | None = None
    index: str | None = None
    base: str | None = None  # of BASES
    was_type: str | None = None
    now_type: str | None = None
    terms: tuple[str, ...] = ()
    owner_was: int | None = None
    owner_now: int | None = None
    mark: str | None = None
    dynamic: str | None = None

    @property
    def is_new_owner(self) -> bool | None:
        """Whether the local that the source begins with is another object than the one that was compiled for."""
        return None if self.owner_was is None or self.owner_now is None else self.owner_was != self.owner_now

    @property
    def is_of_parameter(self) -> bool:
        """Whether it is about a parameter or a buffer of a module, wherever the compiled function has it."""
        return self.base == "parameter" or self.mark == "parameter" or "._buffers['" in (self.subject or "")

    @property
    def is_about_none(self) -> bool:
        """Whether something was None in one of the calls, and not in the other."""
        return (self.was_type == "NoneType") != (self.now_type == "NoneType")

    @property
    def is_condition(self) -> bool:
        """Whether the guard is an expression over several values rather than one value that was kept."""
        return self.part in ("shape", "alias", "membership", "own attribute")


@dataclass(frozen=True, slots=True)
class Recompile:
    """A recompile of a frame. ``reasons`` is empty when torch recorded none."""

    index: int
    compile_id: str
    file: str | None
    line: int | None
    function: str
    reasons: tuple[GuardFailure, ...]
    limit_reached: bool  # the recompile limit was reached: torch stopped compiling this frame


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbolic size (``s0``), or a guard or specialization on one."""

    compile_id: str
    name: str
    value: str | None
    source: str | None
    event: str  # "created" | "guarded" | "specialized" | "unbacked" | "assumed" (by draft_export, as in the example)
    expression: str | None
    user_stack: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A generated kernel, or a library call."""

    index: int
    compile_id: str
    name: str
    language: str  # "cpp" | "triton" | "extern"
    event: int | None  # the event whose payload has the source (the generated module)


@dataclass(frozen=True, slots=True)
class CacheLookup:
    """One lookup in a cache of compiled code, and its answer.

    ``seconds`` is what a miss or a bypass cost, or what a hit saved, as torch measured it. The components of the key
    are read on request (`Recording.key_components`).
    """

    index: int
    compile_id: str
    graph: str | None  # "dynamo" | "forward" | "backward" | "inference", or the name of a kernel
    cache: str  # "aot_autograd" | "fx_graph" | "autotune" | "triton" | "cpp" | "pgo" | "precompile" | "aotinductor"
    outcome: str  # "hit" | "miss" | "bypass" | "disabled"
    key: str | None
    reason: str | None  # torch's reason for a bypass, or what is known of a miss
    seconds: float | None
    event: int | None  # the event whose payload has the components of the key


@dataclass(frozen=True, slots=True)
class KeyComponent:
    """One component of a cache key: two keys are equal if the hashes of all their components are."""

    name: str  # torch's own: "gm", "example_inputs[0]", "inductor_config[epilogue_fusion]"
    hash: str
    value: str


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective that the program issued from Python, as it was before it began. Those of compiled code are not here.

    ``compiles`` is how many compiles of this process began before it, which gives the order of both.
    """

    index: int
    op: str  # as torch.distributed names it: "all_reduce", "all_gather_into_tensor", "barrier", "send"
    group: str  # torch's name of the process group
    number: int  # from 1: which collective of the process it is; after many, not each one is recorded
    sizes: str  # what this rank contributes: "(4, 2) (3,)"
    dtypes: str  # "float32 float32"
    peer: int | None  # the other rank of a send or recv, the root of a broadcast
    is_async: bool
    at: float | None  # seconds since the epoch, by this host's clock
    file: str | None
    line: int | None
    function: str | None
    stance: str | None  # of torch.compiler.set_stance, if not the default
    compiles: int


@dataclass(frozen=True, slots=True)
class ValuesCall:
    """A call of a compiled graph whose values were recorded (``--values``). What follows of it are `NodeValue`.

    ``seed`` is a hash of the state of the random number generator before it. ``notes`` say what has no values, and why.
    """

    index: int
    compile_id: str
    graph: str  # "forward" | "backward" | "inference"
    call: int  # from 0: which call of the graph it is
    seed: str | None
    seconds: float | None  # that the recording of its values took
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ValueSummary:
    """A tensor in short. The statistics are of its finite elements, of complex ones of their absolute values.

    They are None where there are none. ``norm`` is the root of the sum of squares, ``hash`` of the bytes in row-major
    order, ``samples`` up to 64 elements at positions that depend on their number alone.
    """

    shape: tuple[str, ...]
    dtype: str
    stride: tuple[str, ...]
    min: float | None
    max: float | None
    mean: float | None
    norm: float | None
    nan: int
    inf: int
    zero: int
    hash: str
    samples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeValue:
    """The value of a node, as the graph computes it uncompiled.

    ``off_float64`` is the node's own error: its largest difference from float64 on the same inputs, relative to the
    largest element. ``cause`` is what made the first number that is not finite, where no input has one.
    """

    index: int
    values_call: int  # index of the `ValuesCall`
    node: str
    op: str  # what it calls, or "placeholder" or "get_attr"
    inputs: tuple[str, ...]  # names of the nodes that it reads
    span: Span
    summary: ValueSummary
    off_float64: float | None
    cause: str | None


@dataclass(frozen=True, slots=True)
class StoredNodeValue:
    """The value of a node, as compiled code stored or returned it.

    ``off_float64`` is its distance from float64, from what compiled code had stored before; ``wrong`` says that
    rounding does not explain it. ``kernel`` stored it; None if the value is known as a result only.
    """

    index: int  # of the `NodeValue`
    kernel: str | None
    off_float64: float | None
    wrong: bool
    summary: ValueSummary


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial of a search: a candidate that ran by itself, and its outcome as JSON."""

    index: int
    pid: int | None
    candidate: str
    outcome: str
    seconds: float


# The records that a digest makes from a log. Each type has its own table (`recording.schema`).
Record: TypeAlias = (
    Break
    | BreakFacts
    | CacheLookup
    | Collective
    | Compile
    | Graph
    | GraphNode
    | Guard
    | Kernel
    | NodeValue
    | Recompile
    | Run
    | SkippedFrame
    | SourceFile
    | StoredNodeValue
    | Symbol
    | Trial
    | ValuesCall
)


def ended_by(number: int) -> str:
    """How a signal ended a program, in words and with the signal's number and name."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"ended by signal {number}"
    return f"{_ENDINGS.get(name, 'ended')} by signal {number} ({name})"


def signal_note(exit_code: int) -> str:
    """The note of a recording whose program a signal ended."""
    return f"the program was {ended_by(-exit_code)}: the recording holds what came before"
