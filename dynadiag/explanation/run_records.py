"""The records of one run as findings are made from them, with the look-ups that several of them need."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from dynadiag.explanation.coverage import Coverage
from dynadiag.explanation.cuda_graphs import CudaGraph
from dynadiag.explanation.run_end import RunEnd
from dynadiag.explanation.runtime_cost import WarmCalls
from dynadiag.explanation.source import ExplainedRecording, event_data
from dynadiag.explanation.values import ValueTable
from dynadiag.recording.code_origin import original_name
from dynadiag.recording.json_values import list_or_empty
from dynadiag.recording.package_files import PackageFiles
from dynadiag.recording.records import (
    Break,
    CacheLookup,
    Compile,
    Frame,
    Graph,
    Guard,
    Node,
    Recompile,
    Run,
    SkippedFrame,
    Span,
    Symbol,
)
from dynadiag.recording.torch_text.guards import guarded_class, is_class_of_torch

FunctionKey: TypeAlias = tuple[str | None, int | None, str]

DDP = "DistributedDataParallel."  # with which the names of its methods begin

_SELF_SOURCES = ("L['self']", "L['args'][0]")  # where a method that was wrapped has its object
_TYPE_GUARDS = ("TYPE_MATCH", "ID_MATCH")  # guards that name the type of what they are on


def function_key(file: str | None, line: int | None, function: str) -> FunctionKey:
    """A function that torch names once with its class and once without."""
    return (file, line, original_name(function).rpartition(".")[2])


@dataclass(frozen=True, slots=True)
class SkippedForMode:
    """The dispatch modes that were on when a function was skipped, and the user's frames that called it.

    ``for_good``: calls without the mode run in Python too, as torch marks the code (until 2.13).
    """

    modes: tuple[str, ...]
    callers: tuple[Frame, ...]
    for_good: bool


@dataclass(frozen=True, slots=True)
class Export:
    """A call of ``torch.export``, or of what compiles or loads an exported program.

    ``file``, ``line`` and ``function`` are of what was exported, ``callers`` the program's frames down to the call,
    ``stack`` those of the traced code at the exception ``error``. ``condition`` is what tracing could not decide, an
    expression of ``symbols``. ``error`` is None where it succeeded. ``assumed`` is what ``draft_export`` went on with,
    where it met what ends other exports: the value that ``condition`` has for the example ("True"), or "" where
    ``operator`` has no fake kernel, or ``message`` says that sizes violate a constraint. ``contents`` is what wrote the
    file that could not be loaded ("torch.save"), or "nothing", "no archive", "another archive".
    ``shapes`` is the text of ``dynamic_shapes`` that fits the inputs, where what the program gave does not, and
    ``wrong_shape`` a dimension in it that an input has not. ``is_open``: the recording ends in it.
    """

    id: str
    api: str
    strict: bool | None
    file: str | None
    line: int | None
    function: str
    callers: tuple[Frame, ...]
    stack: tuple[Frame, ...]
    error: str | None
    message: str
    condition: str | None
    symbols: tuple[str, ...]
    operator: str | None = None
    assumed: str | None = None
    contents: str | None = None
    shapes: str | None = None
    wrong_shape: str | None = None
    is_open: bool = False

    @property
    def call(self) -> str:
        """The call, with what it says of ``strict``."""
        return f"{self.api}({'' if self.strict is None else f'strict={self.strict}'})"


@dataclass(frozen=True, slots=True)
class RunRecords:
    """What a run left, completed and with the names that the user wrote.

    ``modules`` maps a compile to the class of the object that its function is a method of, ``sources`` a file to its
    text. Of the compiles that failed ``tracebacks`` has torch's own text, ``nodes`` the nodes of Dynamo's graph and
    ``code`` the generated module, each where it was recorded. ``bypasses`` are the look-ups that bypassed a cache; if
    there are any, ``sources`` has all files of the user's. ``code_cached`` are the compiles whose code the FX graph
    cache keeps. ``end`` is there where the end of the program was seen.
    ``torch_objects`` are the compiles and sources of objects of torch's own classes, ``within_ddp`` the compiles that
    were begun in the forward of `DistributedDataParallel`, where that was compiled. ``later_calls`` counts the
    calls of a compiled function after torch had left it to Python, by the line that calls. ``packages`` tells whose a
    file is.
    """

    run: Run
    compiles: Sequence[Compile]
    breaks: Sequence[Break]
    recompiles: Sequence[Recompile]
    skipped: Sequence[SkippedFrame]
    graphs: Sequence[Graph]
    symbols: Sequence[Symbol]
    sources: Mapping[str, str]
    modules: Mapping[str, str]
    warm: WarmCalls | None
    tracebacks: Mapping[str, str]
    nodes: Mapping[str, Sequence[Node]]
    code: Mapping[str, str]
    bypasses: Sequence[CacheLookup] = ()
    code_cached: Collection[str] = ()
    coverage: Coverage | None = None
    values: ValueTable | None = None
    end: RunEnd | None = None
    modes: Mapping[tuple[str, int | None], SkippedForMode] = field(default_factory=dict)
    later_calls: Mapping[FunctionKey, Mapping[Span, int] | None] = field(default_factory=dict)
    exports: Sequence[Export] = ()
    torch_objects: Collection[tuple[str, str]] = ()
    within_ddp: Collection[str] = ()
    cuda_graphs: tuple[CudaGraph, ...] = ()
    packages: PackageFiles = field(default_factory=PackageFiles)

    @property
    def failed(self) -> set[str]:
        """The compiles that ended in an exception."""
        return {item.compile_id for item in self.compiles if item.outcome == "error"}

    @property
    def at_limit(self) -> set[str]:
        """The compiles that were refused by the recompile limit, and of which it is known what changed."""
        return {item.compile_id for item in self.recompiles if item.limit_reached and item.reasons}

    def named(self, function: str, compile_ids: Iterable[str]) -> str:
        """A function's name; of a decorator's inner function also whose method it wraps, as one of the compiles knows
        (``with_defaults.<locals>.wrapper (of BertModel)``).
        """
        owner = next((self.modules[each] for each in compile_ids if each in self.modules), None)
        return f"{function} (of {owner})" if owner and "<locals>" in function else function

    def stack(self, compile_id: str) -> tuple[Frame, ...]:
        """The user's stack at a compile; empty where it is not known."""
        return next((each.user_stack for each in self.compiles if each.compile_id == compile_id), ())

    def callers(self, compile_id: str) -> tuple[Frame, ...]:
        """The user's frames that led to a compile; empty where they are not known."""
        return next((each.callers for each in self.compiles if each.compile_id == compile_id), ())

    def function_of(self, compile_id: str) -> tuple[str | None, str] | None:
        """The file and the name of a compile's function; None where the compile is not known."""
        return next(((each.file, each.function) for each in self.compiles if each.compile_id == compile_id), None)

    def is_rest(self, item: Compile) -> bool:
        """Whether a compile is of the rest of a function behind a graph break, which begins at its line."""
        alike = (each for each in self.compiles if (each.file, each.function) == (item.file, item.function))
        return any(each.outcome == "break" and (each.line or 0) < (item.line or 0) for each in alike)

    def begins_calls(self, file: str | None, function: str) -> bool:
        """Whether the function is called, at least once, by callers that are all uncompiled."""
        own = [each.user_stack[-1] for each in self.compiles if each.user_stack]
        compiled = {(frame.file, frame.function) for frame in own}
        alike = (each.user_stack for each in self.compiles if (each.file, each.function) == (file, function))
        callers = (stack[:-1] if stack[-1].file == file else stack for stack in alike if stack)  # none at the limit
        return any(all((frame.file, frame.function) not in compiled for frame in way) for way in callers)

    def seconds(self, compile_ids: Iterable[str]) -> float | None:
        """The time of these compiles together; None where none was measured."""
        wanted = set(compile_ids)
        spent = [each.seconds.total for each in self.compiles if each.compile_id in wanted]
        known = [each for each in spent if each is not None]
        return sum(known) if known else None

    def graphs_of(self, compile_ids: Iterable[str]) -> int:
        """How many graphs these compiles handed to a backend, each that of its last attempt."""
        return len(self.compiled & set(compile_ids))

    @property
    def compiled(self) -> set[str]:
        """The compiles that have a graph."""
        return {graph.compile_id for graph in self.graphs if graph.stage == "dynamo"}

    def is_compiled_below(self, compile_id: str) -> bool:
        """Whether any graph was made in the call in which this compile was begun, of its function or below it.

        Of DDP's forward it is known what was begun in it: the line of the user's may call more.
        """
        made = self.compiled
        if (self.function_of(compile_id) or (None, ""))[1].startswith(DDP):
            return any(each in made for each in self.within_ddp)
        calls = self.callers(compile_id)
        inside = [(each.file, each.function) for each in self.stack(compile_id)[len(calls) :][:1]]
        stacks = [each.user_stack for each in self.compiles if each.compile_id in made]
        below = [stack[len(calls) :][: len(inside)] for stack in stacks if stack[: len(calls)] == calls]
        return any([(each.file, each.function) for each in way] == inside for way in below)


def compiled_within_ddp(recording: ExplainedRecording, compiles: Iterable[Compile]) -> frozenset[str]:
    """The compiles in whose stack, as torch has it, DDP runs the module that it wraps."""
    if not any(each.function.startswith(DDP) for each in compiles):
        return frozenset()
    stacks = ((event, list_or_empty(data.get("stack"))) for event, data in event_data(recording, "dynamo_start"))
    return frozenset(event.compile_id for event, stack in stacks if any(_runs_module(frame) for frame in stack))


def _runs_module(frame: object) -> bool:
    return isinstance(frame, dict) and frame.get("name") == "_run_ddp_forward"


def torch_objects(guards: Iterable[Guard]) -> frozenset[tuple[str, str]]:
    """The sources that each compile's guards know as objects of torch's own classes."""
    return frozenset(
        (guard.compile_id, guard.source or "")
        for guard in guards
        if guard.kind in _TYPE_GUARDS and is_class_of_torch(guard.expression)
    )


def method_classes(guards: Iterable[Guard]) -> dict[str, str]:
    """The class of the object that each compile's function is a method of, by the guards on its type.

    A method under a decorator is compiled under the name of the decorator's inner function (``with_defaults.<locals>.
    wrapper``), which says nothing of whose it is.
    """
    found: dict[str, str] = {}
    for guard in guards:
        if guard.kind in _TYPE_GUARDS and guard.source in _SELF_SOURCES and (name := guarded_class(guard.expression)):
            found.setdefault(guard.compile_id, name)
    return found
