"""Match the compiles of two recordings by code and content, never by number or line.

A compile is first matched to one of the same function with the same graphs, then to one with the same graphs (its
function was renamed or moved), then to the next of the same function, and last to one with nearly the same operators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from dynadiag.diff.canonical_graph import CanonicalGraph, canonical_graph
from dynadiag.grouping import grouped, paired
from dynadiag.recording.code_origin import is_resume_function, original_name
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Compile, Graph

_MIN_SHARED = 0.5  # of the operators of the larger graph
_NO_COMPILE = "-"


@dataclass(frozen=True, slots=True)
class CompilePair:
    """A compile of the first recording and the same one of the second. One of them is None where it has no partner."""

    before: Compile | None
    after: Compile | None


class GraphReader:
    """The graphs of one recording in canonical form, by compile and stage."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.compiles = tuple(item for item in recording.compiles() if item.compile_id != _NO_COMPILE)
        self._stages = grouped(((graph.compile_id, graph.stage), graph) for graph in recording.graphs())
        self._dynamo = {item.compile_id: self._read_dynamo(item.compile_id) for item in self.compiles}

    def graphs(self, compile_id: str, stage: str) -> tuple[Graph, ...]:
        return tuple(self._stages.get((compile_id, stage), ()))

    def stages(self, compile_id: str) -> tuple[str, ...]:
        """Return the stages of a compile, in the order of their first graphs."""
        return tuple(stage for id_, stage in self._stages if id_ == compile_id)

    def read(self, graph: Graph) -> CanonicalGraph:
        return canonical_graph(self.recording.payload(graph.event))

    def digest(self, compile_id: str) -> tuple[str, ...]:
        """Return the hashes of Dynamo's graphs of a compile."""
        return self._dynamo[compile_id][0]

    def operators(self, compile_id: str) -> Counter[str]:
        """Return how often Dynamo's graphs of a compile have each operator."""
        return self._dynamo[compile_id][1]

    def _read_dynamo(self, compile_id: str) -> tuple[tuple[str, ...], Counter[str]]:
        read = [self.read(graph) for graph in self.graphs(compile_id, "dynamo")]
        return tuple(graph.digest for graph in read), Counter(name for graph in read for name in graph.operators)


def match_compiles(before: GraphReader, after: GraphReader) -> tuple[CompilePair, ...]:
    """Return every compile of both recordings once, in the order of the second; those that went come last."""
    pairs: dict[str, Compile] = {}  # of the first recording, by the id in the second
    left = [list(before.compiles), list(after.compiles)]
    for key in (_code_and_content, _content, _code):
        found = paired(((key(before, item), item) for item in left[0]), ((key(after, item), item) for item in left[1]))
        pairs |= {new.compile_id: old for old, new in found}
        _drop_paired(left, pairs)
    scored = [
        (shared, old, new)
        for old in left[0]
        for new in left[1]
        if (shared := _shared(before.operators(old.compile_id), after.operators(new.compile_id))) >= _MIN_SHARED
    ]
    taken: set[int] = set()
    for _, old, new in sorted(scored, key=lambda item: -item[0]):
        if new.compile_id not in pairs and old.index not in taken:
            pairs[new.compile_id] = old
            taken.add(old.index)
    _drop_paired(left, pairs)
    matched = [CompilePair(pairs.get(item.compile_id), item) for item in after.compiles]
    return (*matched, *(CompilePair(item, None) for item in left[0]))


def in_both(pairs: Iterable[CompilePair]) -> Iterator[tuple[Compile, Compile]]:
    """Yield the compiles that both recordings have: the first one's, and the second one's."""
    for pair in pairs:
        if pair.before is not None and pair.after is not None:
            yield pair.before, pair.after


_Key = Callable[[GraphReader, Compile], Hashable]


def _code_and_content(reader: GraphReader, item: Compile) -> Hashable:
    return _code(reader, item), item.outcome, reader.digest(item.compile_id)


def _content(reader: GraphReader, item: Compile) -> Hashable:
    return (reader.digest(item.compile_id), item.outcome) if reader.operators(item.compile_id) else None


def _code(_: GraphReader, item: Compile) -> Hashable:
    return original_name(item.function), is_resume_function(item.function)


def _shared(old: Counter[str], new: Counter[str]) -> float:
    return (old & new).total() / max(old.total(), new.total(), 1)


def _drop_paired(left: Sequence[list[Compile]], pairs: dict[str, Compile]) -> None:
    used = {item.index for item in pairs.values()}
    left[0][:] = [item for item in left[0] if item.index not in used]
    left[1][:] = [item for item in left[1] if item.compile_id not in pairs]
