"""The steps of a rank in its own order, compiles and collectives.

Ranks that are alike share their steps, so a job of a thousand ranks needs the memory of its few different ones."""

from __future__ import annotations

import ast
import hashlib
import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from dynadiag.diff.canonical_graph import CanonicalGraph, CanonicalNode, canonical_graph
from dynadiag.explanation.identity import parsed
from dynadiag.explanation.run_end import read_end, read_frames
from dynadiag.explanation.source import event_data, recorded_variables
from dynadiag.recording.code_origin import original_name
from dynadiag.recording.reader import Recording, by_compile
from dynadiag.recording.records import Break, Collective, Compile, Frame, Guard, Recompile, SkippedFrame
from dynadiag.recording.torch_text.sources import input_names

COLLECTIVES = "_c10d_functional"  # the namespace of collectives in graphs
POINT_TO_POINT = ("send", "recv")  # a rank may still be in its last one
_NOT_COLLECTIVES = ("wait_tensor", "_wrap_tensor_autograd")
_LAYOUT = re.compile(r"(?<=\])\[.*$")  # strides and device, after dtype and sizes
_INTEGER = re.compile(r"(?<![\w.%$'#])-?\d+(?![\w.'])")


@dataclass(frozen=True)
class GraphContent:
    """One of Dynamo's graphs, with process groups numbered in the order in which the process made them.

    ``shape`` is the same for ranks that compute the same on shards of their own: it is without the whole numbers in
    calls, which are ``numbers``, and without ``types``. Types of what collectives make are in it.
    """

    graph: CanonicalGraph

    @cached_property
    def shape(self) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
        return tuple(
            (_INTEGER.sub("#", node.call), node.type if _is_collective(node) else kind_of_type(node.type), node.inputs)
            for node in self.graph.nodes
        )

    @cached_property
    def masked(self) -> CanonicalGraph:
        """The graph as `shape` has it, to find the first node that differs."""
        pairs = zip(self.graph.nodes, self.shape, strict=True)
        return CanonicalGraph(tuple(replace(node, call=call, type=kind) for node, (call, kind, _) in pairs))

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        return tuple(int(text) for node in self.graph.nodes for text in _INTEGER.findall(node.call))

    @cached_property
    def types(self) -> tuple[str, ...]:
        return tuple(node.type for node in self.graph.nodes)

    @cached_property
    def collectives(self) -> tuple[CanonicalNode, ...]:
        return tuple(node for node in self.graph.nodes if _is_collective(node))


def _is_collective(node: CanonicalNode) -> bool:
    return COLLECTIVES in node.target and not node.target.rpartition(".")[2].startswith(_NOT_COLLECTIVES)


def kind_of_type(type_: str) -> str:
    """A tensor type without its sizes and strides: its dtype and its number of dimensions."""
    dtype, bracket, rest = type_.partition("[")
    sizes = rest.partition("]")[0]
    return f"{dtype}[{sizes.count(',') + bool(sizes.strip())}]" if bracket else type_


def short_type(type_: str) -> str:
    """A tensor type without its strides and its device."""
    return _LAYOUT.sub("", type_)


def is_size(node: CanonicalNode) -> bool:
    """Whether a node is a size that may change."""
    return node.type.startswith("Sym(")


@dataclass(frozen=True, slots=True)
class GuardedValue:
    """A guard without ids of objects, and the user's line that it is for."""

    source: str
    expression: str
    file: str | None
    line: int | None


@dataclass(frozen=True)
class CompileStep:
    """One compile, with what is compared of it. ``unseen`` collectives of compiled code or C++ began before it, since
    the last that the program issued.
    """

    compile: Compile
    recompile: Recompile | None
    breaks: tuple[Break, ...]
    graphs: tuple[GraphContent, ...]
    guards: tuple[GuardedValue, ...]
    unseen: int = 0

    def input_name(self, node: CanonicalNode) -> str:
        """An input of a graph as the program writes it."""
        return input_names([node.name], (guard.source for guard in self.guards))[0]

    @property
    def label(self) -> tuple[object, ...]:
        """What it is a compile of."""
        return "compile", self.compile.file, self.compile.line, original_name(self.compile.function)

    @cached_property
    def key(self) -> tuple[object, ...]:
        """What alike compiles share."""
        return (
            *self.label,
            self.compile.outcome,
            self.compile.cache,
            self.recompile is not None,
            tuple((each.gb_type, each.span.file, each.span.line) for each in self.breaks),
            tuple(graph.shape for graph in self.graphs),
        )

    @cached_property
    def details(self) -> tuple[object, ...]:
        """What may differ between shards."""
        return tuple((graph.numbers, graph.types) for graph in self.graphs), self.guards


@dataclass(frozen=True)
class CollectiveStep:
    """One collective that the program issued itself. Its group is numbered as in graphs.

    ``statement`` is the text of its line, empty where the source was not recorded, ``loop_end`` the last line of the
    loop that it is in.
    """

    collective: Collective
    group: str
    statement: str = ""
    loop_end: int | None = None

    @property
    def label(self) -> tuple[object, ...]:
        """What operation it is, on which group."""
        return "collective", self.collective.op, self.group

    @cached_property
    def key(self) -> tuple[object, ...]:
        """What alike collectives share."""
        item = self.collective
        return (*self.label, item.sizes, item.dtypes, item.peer)

    @property
    def details(self) -> tuple[object, ...]:
        """The line, which differs where ranks come to a collective in branches of their own."""
        return self.collective.file, self.collective.line


@dataclass(frozen=True)
class UnseenStep:
    """Collectives of one group that compiled code or C++ began, such as DDP's: only their number is known.

    It is ``open`` if the process may have been about to begin more: it did not end by itself, and nothing follows.
    """

    group: str
    count: int
    open: bool

    @property
    def label(self) -> tuple[object, ...]:
        """What it is a number of."""
        return "unseen", self.group

    @property
    def key(self) -> tuple[object, ...]:
        """What alike steps share."""
        return (*self.label, None if self.open else self.count)

    @property
    def details(self) -> tuple[object, ...]:
        """How many there were at least."""
        return (self.count,)


Step = CompileStep | CollectiveStep | UnseenStep


@dataclass(frozen=True)
class RankTrace:
    """The steps of one rank, without sends and receives: ranks have different ones by design.

    ``times`` is when each collective among the steps began, in seconds since the epoch by the host's clock. ``last`` is
    the last collective of all that the program issued, ``stood`` where the program stood still after that. ``issued``
    is the number of all collectives, ``seconds`` what all compiles took together.
    """

    steps: tuple[Step, ...]
    times: array[float]
    last: Collective | None
    stood: Frame | None
    issued: int
    stances: frozenset[str]
    skipped: tuple[SkippedFrame, ...]
    exports: tuple[tuple[str, str], ...]  # what was called, and the exception that it raised
    disabled: bool
    world_size: int | None
    backend: str | None
    seconds: float

    @cached_property
    def key(self) -> tuple[object, ...]:
        """What alike ranks share."""
        return tuple((step.key, step.details) for step in self.steps)

    @property
    def compiles(self) -> tuple[CompileStep, ...]:
        return tuple(step for step in self.steps if isinstance(step, CompileStep))


_QUOTED = re.compile(r"'([^'\n]*)'")
# Ids of objects and types, which each process has its own of.
_ID = re.compile(r"(?<![\w.])\d{7,}\b(?!\.)|\b0x[0-9a-f]+\b")
# The index of a device in a type (`f32[8]cuda:1`), an argument (`device='cuda:1'`, `index=1`) and a guard (`device=1`).
# Each rank of a host has its own.
_DEVICE_INDEX = re.compile(r"""(?<=[\]'"])([a-z]+):\d+(?=['"])|(device\(type='[a-z]+'), index=\d+|(\bdevice=)\d+\b""")
_DISABLING = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")


class TraceReader:
    """Reads the traces of the ranks of one job. What ranks have in common is parsed once and kept once."""

    def __init__(self) -> None:
        self._graphs: dict[tuple[bytes, tuple[str, ...]], GraphContent] = {}
        self._steps: dict[str, tuple[Step, ...]] = {}
        self._files: dict[str, ProgramLines] = {}  # read once: ranks run one program

    def read(self, recording: Recording) -> RankTrace:
        groups, world_size, backend = _groups(recording)
        compiles = tuple(self._compile_steps(recording, groups))
        issued = recording.collectives()
        own = [each for each in issued if each.op not in POINT_TO_POINT]
        unseen = _unseen(recording, own, groups)
        last = issued[-1].number if issued else 0
        stood = None
        for _, data in event_data(recording, "dynadiag_standstill"):
            after, file = data.get("after"), data.get("file")
            if isinstance(file, str) and type(after) is int and after >= last:
                (stood,) = read_frames([data])
        variables = recorded_variables(recording) or {}
        return RankTrace(
            steps=self._shared(tuple(_in_order(compiles, self._collective_steps(recording, own, groups), unseen))),
            times=array("d", [each.at or 0.0 for each in own]),
            last=issued[-1] if issued else None,
            stood=stood,
            issued=len(own) + sum(step.count for steps in unseen.values() for step in steps),
            stances=frozenset(each.stance for each in issued if each.stance is not None),
            skipped=recording.skipped(),
            exports=tuple(
                (str(data.get("api")), str(data.get("error")))
                for _, data in event_data(recording, "dynadiag_export")
                if data.get("outcome") == "error"
            ),
            disabled=any(variables.get(name) == "1" for name in _DISABLING),
            world_size=world_size,
            backend=backend,
            seconds=sum(step.compile.seconds.total or 0.0 for step in compiles),
        )

    def _shared(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """The steps of an earlier rank if these are the same."""
        digest = hashlib.sha256(repr([(step.key, step.details) for step in steps]).encode("utf-8", "replace"))
        return self._steps.setdefault(digest.hexdigest(), steps)

    def _collective_steps(
        self, recording: Recording, issued: Sequence[Collective], groups: tuple[str, ...]
    ) -> list[CollectiveStep]:
        found = []
        for each in issued:
            file = self._file(recording, each.file or "")
            group = _number_of(each.group, groups)
            found.append(CollectiveStep(each, group, file.statement(each.line), file.loop_end(each.line)))
        return found

    def _file(self, recording: Recording, name: str) -> ProgramLines:
        if name not in self._files:
            self._files[name] = ProgramLines(recording.source(name) or "")
        return self._files[name]

    def _compile_steps(self, recording: Recording, groups: tuple[str, ...]) -> Iterator[CompileStep]:
        again = {each.compile_id: each for each in recording.recompiles()}
        breaks, guards = by_compile(recording.breaks()), by_compile(recording.guards())
        graphs = by_compile(recording.graphs_at("dynamo"))
        unseen: dict[str, int] = {}
        for event, data in event_data(recording, "dynadiag_frame"):
            if type(count := data.get("unseen")) is int:
                unseen.setdefault(event.compile_id, count)
        for compile_ in recording.compiles():
            id_ = compile_.compile_id
            yield CompileStep(
                compile=compile_,
                recompile=again.get(id_),
                breaks=tuple(breaks.get(id_, ())),
                graphs=tuple(self._graph(recording.payload(each.event), groups) for each in graphs.get(id_, ())),
                guards=tuple(_guarded_value(each) for each in guards.get(id_, ())),
                unseen=unseen.get(id_, 0),
            )

    def _graph(self, text: str, groups: tuple[str, ...]) -> GraphContent:
        key = hashlib.sha256(text.encode("utf-8", "replace")).digest(), groups
        if key not in self._graphs:
            self._graphs[key] = GraphContent(
                _with_numbered_groups(canonical_graph(_without_device_index(text)), groups)
            )
        return self._graphs[key]


def _guarded_value(item: Guard) -> GuardedValue:
    return GuardedValue(item.source, _without_device_index(_ID.sub("@", item.expression)), item.file, item.line)


def _without_device_index(text: str) -> str:
    return _DEVICE_INDEX.sub(lambda found: found[1] or found[2] or found[3], text)


def _groups(recording: Recording) -> tuple[tuple[str, ...], int | None, str | None]:
    """The names of the process groups in the order in which they were made, and size and backend of the first."""
    made: dict[str, dict[str, object]] = {}
    for _, data in event_data(recording, "dynadiag_group"):
        made.setdefault(str(data.get("name")), data)
    world = next(iter(made.values()), {})
    size, backend = world.get("size"), world.get("backend")
    return tuple(made), size if isinstance(size, int) else None, backend if isinstance(backend, str) else None


def _unseen(recording: Recording, own: Sequence[Collective], groups: tuple[str, ...]) -> dict[int, list[UnseenStep]]:
    """How many collectives began without an event, by the position in ``own`` of the collective that came next."""
    told: dict[tuple[int, str], int] = {}
    for _, data in event_data(recording, "dynadiag_unseen"):
        group, count, before = data.get("group"), data.get("count"), data.get("before")
        if isinstance(group, str) and type(count) is int and type(before) is int:
            told[before, group] = count  # a later event counts again what an earlier one did
    counts: Counter[tuple[int, str]] = Counter()
    numbers, ended = [each.number for each in own], _ended_by_itself(recording)
    for (before, group), count in told.items():
        counts[bisect_left(numbers, before), group] += count
    found: dict[int, list[UnseenStep]] = {}
    for (place, group), count in sorted(counts.items()):
        step = UnseenStep(_number_of(group, groups), count, open=place == len(own) and not ended)
        found.setdefault(place, []).append(step)
    return found


def _ended_by_itself(recording: Recording) -> bool:
    end = read_end(recording)
    return end is not None and end.error is None and recording.run.exit_code in (None, 0)


def _number_of(group: str, groups: Sequence[str]) -> str:
    return f"#{groups.index(group)}" if group in groups else group


def _with_numbered_groups(graph: CanonicalGraph, groups: Sequence[str]) -> CanonicalGraph:
    """The graph with the names of process groups as their numbers: two ranks are in different groups of one kind."""

    def numbered(node: CanonicalNode) -> CanonicalNode:
        if COLLECTIVES not in node.target:
            return node
        return replace(node, call=_QUOTED.sub(lambda found: f"'{_number_of(found[1], groups)}'", node.call))

    return CanonicalGraph(tuple(map(numbered, graph.nodes)))


def _in_order(
    compiles: Sequence[CompileStep], collectives: Sequence[CollectiveStep], unseen: Mapping[int, list[UnseenStep]]
) -> Iterator[Step]:
    """Compiles and collectives in the order in which they began: those without an event after the compiles."""
    done = 0
    for place, each in enumerate(collectives):
        yield from compiles[done : each.collective.compiles]
        done = max(done, each.collective.compiles)
        yield from unseen.get(place, ())
        yield each
    yield from compiles[done:]
    yield from unseen.get(len(collectives), ())


class ProgramLines:
    """One file of the program. A file whose text is not known, or is no Python, has no loops."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = text.splitlines()

    def statement(self, line: int | None) -> str:
        """The text of a line, empty if there is none."""
        return self._lines[line - 1].strip() if line is not None and 0 < line <= len(self._lines) else ""

    def loop_end(self, line: int | None) -> int | None:
        """The last line of the innermost loop around a line."""
        around = [end for begin, end in self._loops if line is not None and begin < line <= end]
        return min(around, default=None)

    @cached_property
    def _loops(self) -> list[tuple[int, int]]:
        tree = parsed(self._text)
        loops = (
            node
            for node in ast.walk(tree or ast.Module([], []))
            if isinstance(node, (ast.For, ast.AsyncFor, ast.While))
        )
        return [(node.lineno, node.body[-1].end_lineno or node.lineno) for node in loops]
