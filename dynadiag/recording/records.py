"""The typed records of a recording: what torch.compile did, as frozen data.

Records hold text, numbers and other records only. Lines are 1-based, columns are 0-based characters, ends are
exclusive. ``None`` means that torch did not say. ``file`` is the path as Python gave it (absolute, or a name in angle
brackets such as ``<string>``). ``compile_id`` is torch's own text: ``"0/1"`` for the second compile of frame 0,
``"!0/0/0"`` under compiled autograd, ``"-"`` outside any compile. torch reuses ids after a reset: the second compile of
an id is recorded as ``"0/0#2"``. What belongs to a call of ``torch.export`` has ``"export/0"``: torch has no id of it.

The comment at a field of a record with a table is what `docs/recording-schema.md` says of its column.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import TypeAlias

# Notes on runs. The first one does not hold while the program still runs.
FULL = "the size limit of the recording was reached: later events are not in it"
CUT_SHORT = "the recording ends before the program did: it was cut short"
UNCOMPILED_NOTE = "this is the uncompiled variant of a comparison: nothing was to be compiled"
COMPILED_AUTOGRAD = "!"  # what the ids of what compiled autograd compiles begin with, in torch's own text form
EXPORT = "export/"  # what the id of an export begins with, in place of a compile's
FAILED_TRACE = "failed_trace"  # the stage of a graph that Dynamo had not finished when it failed
DYNAMO_STAGES = ("dynamo", FAILED_TRACE)
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

    file: str | None  # the source file
    line: int | None  # the first line, from 1
    column: int | None = None  # the first column, from 0
    end_line: int | None = None  # the last line
    end_column: int | None = None  # the column after the last one


@dataclass(frozen=True, slots=True)
class Run:
    """The process that was recorded: one row."""

    target: str  # what was run, as the user named it
    argv: tuple[str, ...]  # the program's arguments
    cwd: str | None  # the folder it ran in
    torch: str | None  # torch's version
    python: str | None  # Python's version
    triton: str | None  # Triton's version
    device: str | None  # the device that the program had
    rank: int | None  # its rank in a distributed run
    pid: int | None  # its process id
    started: float | None  # when it began, seconds since the epoch
    seconds: float | None  # how long it ran
    exit_code: int | None  # the program's own, negative for a signal, None if it was cut short or nobody saw it end
    complete: bool  # whether the recorder saw the end of the process
    notes: tuple[str, ...]  # sentences about what the recording lacks

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

    total: float | None = None  # seconds in all
    dynamo: float | None = None  # of them in Dynamo
    aot: float | None = None  # of them in AOTAutograd and below
    inductor: float | None = None  # of them in Inductor and below
    codegen: float | None = None  # of them in code generation


@dataclass(frozen=True, slots=True)
class Compile:
    """One compile of one frame, with all its attempts."""

    index: int  # from 0, in the order in which they began
    compile_id: str
    file: str | None
    line: int | None
    function: str  # the function that was compiled
    user_stack: tuple[Frame, ...]
    outcome: str  # "ok" | "break" | "error" | "skipped"
    attempts: int  # how many times Dynamo began to trace it
    seconds: Seconds
    guards: int  # how many guards the compiled code has
    error: str | None  # the type of the failure
    reason: str | None  # torch's message about it
    cache: str | None  # "hit", "miss" or "bypass" of the FX graph cache

    @property
    def callers(self) -> tuple[Frame, ...]:
        """The user's frames that led to the compiled function, without its own.

        The stack ends with the function itself, unless it is one of torch's. A function that goes on after a graph
        break is called by itself, at the line of the break: that frame did not lead to it either.
        """
        stack = self.user_stack
        while stack and (stack[-1].file, stack[-1].line) == (self.file, self.line):
            stack = stack[:-1]
        return stack


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph at one stage of the pipeline. Its text and nodes are read on request."""

    index: int  # from 0
    compile_id: str
    stage: str  # "dynamo" | "failed_trace" | "joint" | "forward" | "backward" | "post_grad" | torch's name, and others
    nodes: int  # how many nodes it has
    ops: int  # nodes that compute: neither placeholder, get_attr nor output
    event: int  # the event whose payload is its text

    @property
    def is_of_dynamo(self) -> bool:
        """Whether Dynamo traced it: what it gave to the backend, or what there was of it when it failed."""
        return self.stage in DYNAMO_STAGES


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a graph that was recorded as data."""

    position: int  # from 0, in the order of the graph
    name: str  # the node's name
    op: str  # "placeholder" | "get_attr" | "call_function" | "call_method" | "call_module" | "output"
    target: str  # what it calls or gets
    inputs: tuple[str, ...]  # names of the nodes that it reads
    arguments: str  # JSON, see capture.graphs
    shape: str | None  # such as "(4, s0)"
    dtype: str | None  # such as torch.float32
    device: str | None  # such as cpu
    span: Span


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node and the index of its graph, as the digest yields it."""

    graph: int  # the graph's id
    node: Node


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A source file as it was when recorded: the program's, or one that a node's stack names. The event has it."""

    file: str  # the file's path
    event: int  # the event whose payload is its text


@dataclass(frozen=True, slots=True)
class BreakFacts:
    """What torch's message on a graph break says, as values, and what the recorder saw. None where neither says it."""

    index: int = 0  # of the break
    subject: str | None = None  # what torch could not trace: "print", "time.sleep", "Logger.info"
    subject_file: str | None = None  # the file that it is in
    is_native: bool = False  # whether it has no Python code
    argument_types: tuple[str, ...] = ()  # of a builtin, known where `has_types`
    has_keywords: bool = False  # whether it has keyword arguments
    has_types: bool = False  # whether torch names the types of the arguments
    method: str | None = None  # the method of a logger
    operator: str | None = None  # such as "aten.nonzero", "mine::twice", "numpy.median"
    lacks_fake: bool = False  # whether the operator has no fake kernel
    operator_error: str | None = None  # what the operator raised on tensors without data: "TypeError: ..."
    symbols: tuple[str, ...] = ()  # the numbers without a value that a condition needs
    option: str | None = None  # of torch._dynamo.config, which the message names
    condition: str | None = None  # the constant value of an assertion's condition
    within: str | None = None  # the higher-order operator whose function was traced
    then: str | None = None  # the type of break at which torch failed to split the graph
    exception: str | None = None  # the type of what the traced code raised
    message: str | None = None  # its message
    raised_at: Span = Span(None, None)  # where the exception was raised
    inside: Span = Span(None, None)  # in torch's or Python's library
    inside_function: str | None = None  # the function of torch's or Python's library that breaks


@dataclass(frozen=True, slots=True)
class Break:
    """A graph break. ``reason``, ``explanation`` and ``hints`` are torch's words, ``facts`` their own table."""

    index: int  # from 0, in the order of the log
    compile_id: str
    gb_id: str | None  # its number in torch's registry, such as "GB0124"
    gb_type: str  # its type in torch's registry
    reason: str  # torch's message about this one
    explanation: str  # torch's explanation of the type
    hints: tuple[str, ...]  # what torch advises
    span: Span
    function: str  # the function that the place is in
    user_stack: tuple[Frame, ...]
    cause: int | None  # the index of the root break that this one follows from
    fatal: bool  # whether torch raised instead of splitting the graph (fullgraph=True)
    facts: BreakFacts = field(default=BreakFacts(), metadata={"table": False})


# A reason of ours: torch has none for what it left.
INTERRUPTED = "it was interrupted, as by Ctrl-C"  # the reason of a compile that has neither code nor a failure
NO_OPERATION = "no tensor operation in it, so left to Python for good: calls that have one are not compiled either"
# The recorder's words for an error that torch suppresses: "Attempt to trace generator", GB0003.
GENERATOR = "torch.compile compiles no generator by itself, only where a compiled function goes through it"


@dataclass(frozen=True, slots=True)
class SkippedFrame:
    """A frame that Dynamo left to Python, and the reason."""

    file: str
    line: int | None
    function: str  # the frame's function
    reason: str  # why


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition under which compiled code is reused."""

    index: int  # from 0
    compile_id: str
    kind: str  # torch's name, such as "TENSOR_MATCH"
    source: str  # what it looks at, such as L['x']
    expression: str  # what is checked
    file: str | None
    line: int | None


@dataclass(frozen=True, slots=True)
class GuardFailure:
    """A guard that failed and caused a recompile. What is not known is None.

    ``base`` is where in the program the value is kept: "argument", "attribute" (of a holder that is not known), "module
    attribute", "object attribute", "held attribute" (of an object, or in a container, that a module holds),
    "parameter", "optimizer", "closure", "default", "global", "before break" or "mode".
    ``part`` is what of it changed: "size", "stride", "rank", "dtype", "device", "requires_grad", "dispatch keys",
    "type" (with two texts that are equal where a class of the same name was defined anew), "identity", "value",
    "length", "keys", "membership", "presence", "own attribute", "freed", "alias", "shape", "state", "backend", "race"
    or "other".

    ``was`` and ``now`` are short texts of the two values, ``was_type`` and ``now_type`` the names of their types.
    ``subject`` is the source without the part of a tensor that changed. ``index`` is the dimension of a size or a
    stride, the key of a membership, the name of a global state, and of a shape expression what it demands: "number"
    (one value), "multiple", "above one" (neither 0 nor 1), "together" (of several sizes), "range". ``terms`` are the
    sources of a shape expression, the two sources of an alias, the device of a state of autocast. ``owner_was`` and
    ``owner_now`` are the numbers of the objects that the local was, such as ``self``, which the source begins with:
    each object of a run has a number of its own. ``mark`` is what the program has said of a size: "dynamic" or
    "static", or "parameter" where torch keeps it a constant since the tensor is a parameter; ``dynamic`` is what it has
    said of all that changes: "automatic" (torch makes it a symbol from the first change on), "always"
    (``dynamic=True``), "never" (``dynamic=False``) or "off" (``automatic_dynamic_shapes = False``).
    """

    guard: str
    source: str | None
    was: str | None
    now: str | None
    against: str  # compile id of the cache entry that the guard belongs to
    file: str | None
    line: int | None
    kind: str | None = None  # torch's: "TENSOR_MATCH"
    part: str = "other"
    subject: str | None = None
    index: str | None = None
    base: str | None = None
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
    def is_static(self) -> bool:
        """Whether the program has said that each size and number is compiled apart."""
        return self.dynamic in ("never", "off")

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
    """A frame compiled again."""

    index: int  # from 0
    compile_id: str
    file: str | None
    line: int | None
    function: str  # the function that was compiled again
    reasons: tuple[GuardFailure, ...]  # the guards that failed; none if torch recorded none
    limit_reached: bool  # whether torch stopped compiling the frame: the recompile limit


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbolic size (``s0``), or a guard or specialization on one."""

    compile_id: str
    name: str  # such as s0
    value: str | None  # its value in the traced call
    source: str | None  # where it comes from, such as L['x'].size()[0]
    event: str  # "created" | "guarded" | "specialized" | "unbacked" | "marked" (an input so) | "assumed" (draft_export)
    expression: str | None  # the guard or the value; where one became constant, the operator, and what it was given
    user_stack: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A generated kernel, or a library call."""

    index: int  # from 0
    compile_id: str
    name: str  # its name
    language: str  # "cpp" | "triton" | "extern"
    event: int | None  # the event whose payload holds its source


@dataclass(frozen=True, slots=True)
class CacheLookup:
    """One lookup in a cache of compiled code, and its answer. `Recording.key_components` reads what the key is of."""

    index: int  # from 0, in the order in which their compiles ended
    compile_id: str
    graph: str | None  # "dynamo" | "forward" | "backward" | "inference", or the name of a kernel
    cache: str  # "aot_autograd" | "fx_graph" | "autotune" | "triton" | "cpp" | "pgo" | "precompile" | "aotinductor"
    outcome: str  # "hit" | "miss" | "bypass" | "disabled"
    key: str | None  # the key that was looked up
    reason: str | None  # torch's reason for a bypass, or what is known of a miss
    seconds: float | None  # what a miss or a bypass cost, or what a hit saved, as torch measured it
    event: int | None  # the event whose payload has the components of the key


@dataclass(frozen=True, slots=True)
class KeyComponent:
    """One component of a cache key: two keys are equal if the hashes of all their components are."""

    name: str  # torch's own: "gm", "example_inputs[0]", "inductor_config[epilogue_fusion]"
    hash: str
    value: str


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective that the program issued from Python, as it was before it began. Not those of compiled code."""

    index: int  # from 0, in the order in which they began
    op: str  # as torch.distributed names it: "all_reduce", "all_gather_into_tensor", "barrier", "send"
    group: str  # torch's name of the process group
    number: int  # which collective of the process it is, from 1; after many, not each one is recorded
    sizes: str  # of the tensors that this rank contributes: "(4, 2) (3,)"
    dtypes: str  # of these tensors: "float32 float32"
    peer: int | None  # the other rank of a send or recv, the root of a broadcast
    is_async: bool  # whether the caller goes on before it is done
    at: float | None  # when it began, seconds since the epoch by this host's clock
    file: str | None
    line: int | None
    function: str | None  # the function that the line is in
    stance: str | None  # of torch.compiler.set_stance, where it is not the default
    compiles: int  # how many compiles of this process began before, which gives the order of both


@dataclass(frozen=True, slots=True)
class ValuesCall:
    """A call of a compiled graph whose values were recorded (``--values``). What follows of it are `NodeValue`."""

    index: int  # from 0, in the order of the calls
    compile_id: str
    graph: str  # "forward" | "backward" | "inference"
    call: int  # which call of the graph it is, from 0
    seed: str | None  # a hash of the state of the random number generator before it
    seconds: float | None  # that the recording of its values took
    notes: tuple[str, ...]  # what has no values, and why


@dataclass(frozen=True, slots=True)
class ValueSummary:
    """A tensor in short. Statistics are None where there is no finite element."""

    shape: tuple[str, ...]  # its sizes
    dtype: str  # its type, such as float32
    stride: tuple[str, ...]  # its strides in elements
    min: float | None  # the smallest finite element; of complex numbers their absolute values count
    max: float | None  # the largest finite element
    mean: float | None  # the mean of the finite elements
    norm: float | None  # the root of the sum of their squares
    nan: int  # how many elements are NaN
    inf: int  # how many are infinite
    zero: int  # how many are zero
    hash: str  # of the bytes in row-major order
    samples: tuple[str, ...]  # up to 64 elements, at positions that depend on their number alone


@dataclass(frozen=True, slots=True)
class NodeValue:
    """The value of a node in one call, as the graph computes it uncompiled."""

    index: int  # from 0, in the order of execution
    values_call: int  # the index of the `ValuesCall`
    node: str  # the name of the node
    op: str  # what it calls, or "placeholder" or "get_attr"
    inputs: tuple[str, ...]  # the names of the nodes that it reads
    span: Span
    summary: ValueSummary
    off_float64: float | None  # its own error against float64 on the same inputs, relative to the largest element
    cause: str | None  # what made the first number that is not finite, where no input has one


@dataclass(frozen=True, slots=True)
class StoredNodeValue:
    """The value of a node in one call, as compiled code stored or returned it."""

    index: int  # of the `NodeValue`
    kernel: str | None  # the kernel that stored it; None if the value is known as a result only
    off_float64: float | None  # its distance from float64, from what compiled code had stored before
    wrong: bool  # whether rounding does not explain the distance
    summary: ValueSummary


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What the run of a call found of a node besides its value."""

    index: int  # of the `NodeValue`
    reaches: bool | None  # whether it, or what of it is not finite, comes to what the graph returns or writes to inputs
    moved: float | None  # how far it moves in float64 if all that it reads moves by a unit in the last place
    writes: str | None  # the input that its operator changed, which its schema does not say
    gradient_of: str | None  # the input whose gradient autograd has otherwise, of the uncompiled graph in float64
    gradient_off: float | None  # how far that gradient is from autograd's, relative to the largest element
    autograd: tuple[str, ...]  # the elements of it that differ most, by autograd
    compiled: tuple[str, ...]  # the same elements, as compiled code returned them


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial of a search: a candidate that ran by itself, and its outcome as JSON."""

    index: int  # from 0, in the order in which they ended
    pid: int | None  # the process that ran it
    candidate: str  # what was tried
    outcome: str  # JSON: how it ended
    seconds: float  # how long it took


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
    | NodeFacts
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
