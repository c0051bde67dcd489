"""Reads what a rank did from its recording, in a form in which ranks can be compared."""

from __future__ import annotations

import ast
import hashlib
import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

from dynadiag.diff import CanonicalGraph, CanonicalNode, canonical_graph
from dynadiag.explanation.run_end import read_end, read_frames
from dynadiag.explanation.source import event_data, recorded_variables
from dynadiag.job.trace import (
    COLLECTIVES,
    POINT_TO_POINT,
    CollectiveStep,
    CompileStep,
    GraphContent,
    GuardedValue,
    RankTrace,
    Step,
    UnseenStep,
)
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Break, Collective, Frame, Graph, Guard

__all__ = ["ProgramLines", "TraceReader"]

_QUOTED = re.compile(r"'([^'\n]*)'")
# Ids of objects and types, which each process has its own of.
_ID = re.compile(r"(?<![\w.])\d{7,}\b(?!\.)|\b0x[0-9a-f]+\b")
T = TypeVar("T", Break, Graph, Guard)
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
        """Return what one process did."""
        groups, world_size, backend = _groups(recording)
        compiles = tuple(self._compile_steps(recording, groups))
        issued = recording.collectives()
        own = [each for each in issued if each.op not in POINT_TO_POINT]
        unseen = _unseen(recording, own, groups)
        return RankTrace(
            steps=self._shared(tuple(_in_order(compiles, self._collective_steps(recording, own, groups), unseen))),
            times=array("d", [each.at or 0.0 for each in own]),
            last=issued[-1] if issued else None,
            stood=_standstill(recording, issued[-1].number if issued else 0),
            issued=len(own) + sum(step.count for steps in unseen.values() for step in steps),
            stances=frozenset(each.stance for each in issued if each.stance is not None),
            skipped=recording.skipped(),
            disabled=_is_disabled(recording),
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
        breaks, guards = _by_compile(recording.breaks()), _by_compile(recording.guards())
        graphs = _by_compile(recording.graphs_at("dynamo"))
        unseen = _unseen_before(recording)
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


def _by_compile(records: Iterable[T]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for each in records:
        found.setdefault(each.compile_id, []).append(each)
    return found


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


def _unseen_before(recording: Recording) -> dict[str, int]:
    """The number of collectives without an event that began before each compile, by its id."""
    found: dict[str, int] = {}
    for event, data in event_data(recording, "dynadiag_frame"):
        if type(count := data.get("unseen")) is int:
            found.setdefault(event.compile_id, count)
    return found


def _ended_by_itself(recording: Recording) -> bool:
    end = read_end(recording)
    return end is not None and end.error is None and recording.run.exit_code in (None, 0)


def _standstill(recording: Recording, last: int) -> Frame | None:
    """Where the program stood still after its last collective."""
    found = None
    for _, data in event_data(recording, "dynadiag_standstill"):
        after, file = data.get("after"), data.get("file")
        if isinstance(file, str) and type(after) is int and after >= last:
            (found,) = read_frames([data])
    return found


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


def _is_disabled(recording: Recording) -> bool:
    """Whether the environment of the process disabled torch.compile."""
    variables = recorded_variables(recording) or {}
    return any(variables.get(name) == "1" for name in _DISABLING)


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
        try:
            tree = ast.parse(self._text)
        except (SyntaxError, ValueError, RecursionError):
            return []
        loops = (node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.AsyncFor, ast.While)))
        return [(node.lineno, node.body[-1].end_lineno or node.lineno) for node in loops]
