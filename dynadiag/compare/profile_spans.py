"""From a profile of warm calls to the uses of compiled code. Independent of torch: a span is a name and two times.

The spans of compiled code are nested: after a graph break, the next compiled code (the rest of the function, or a
callee) runs inside the span of the code that broke. The own time of a code is its span without its graph, without
cache lookups, and without the code that runs inside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from dynadiag.explanation.runtime_cost import CodeRun, WarmCalls
from dynadiag.torch_private.operator_profile import CACHE_LOOKUP, COMPILED_BACKWARD, COMPILED_REGION

CALL, GRAPH = "dynadiag call", "dynadiag graph"  # the marks that `measure` sets
LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch")  # prefixes of the names of CUDA's launch calls
_NODES = (CALL, GRAPH, CACHE_LOOKUP, COMPILED_BACKWARD)


@dataclass(frozen=True, slots=True)
class ProfileSpan:
    """A named interval of a profile. Times are in seconds, all from one clock."""

    name: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(slots=True)
class _Node:
    """The span of a call, compiled code, a cache lookup or a graph, with the nested ones."""

    span: ProfileSpan
    inside: list[_Node] = field(default_factory=list)
    operators: int = 0
    launches: int = 0

    @property
    def compile_id(self) -> str | None:
        name = self.span.name
        return name.removeprefix(COMPILED_REGION) if name.startswith(COMPILED_REGION) else None


@dataclass(slots=True)
class _Tally:
    """What one call spent in one compiled code when it was entered from one parent."""

    calls: int = 0
    graphs: int = 0
    guard: float = 0.0
    before: float = 0.0
    after: float = 0.0
    operators: int = 0
    launches: int = 0


_Key = tuple[str, str | None]


def warm_calls(spans: Iterable[ProfileSpan], others: Sequence[str] = ()) -> WarmCalls:
    """The uses of compiled code in the calls of a profile. The spans are from one thread, and nested.

    ``others`` are the compile ids that ran with other inputs. Raises ValueError if the spans contain no call.
    """
    calls = list(_calls(spans))
    if not calls:
        raise ValueError("no call in the profile")
    tallies = [_tallies(call) for call in calls]
    keys = dict.fromkeys(key for each in tallies for key in each)
    return WarmCalls(
        calls=len(calls),
        seconds=median(call.span.seconds for call in calls),
        outside=max(0.0, median(_own_seconds(call) for call in calls)),
        outside_operators=fmean(call.operators for call in calls),
        backwards=fmean(sum(each.span.name == COMPILED_BACKWARD for each in _nodes(call)) for call in calls),
        uses=tuple(_use(key, [each.get(key, _Tally()) for each in tallies]) for key in keys),
        others=tuple(others),
    )


def compile_ids_run(spans: Iterable[ProfileSpan]) -> tuple[str, ...]:
    """The compile ids of the code that ran, each once, in order."""
    return tuple(
        dict.fromkeys(
            span.name.removeprefix(COMPILED_REGION) for span in spans if span.name.startswith(COMPILED_REGION)
        )
    )


def _calls(spans: Iterable[ProfileSpan]) -> Iterator[_Node]:
    """The calls as trees. Operators and launches count for the innermost span; nested operators do not count.

    A graph and a compiled backward are nodes of their own: what they call is in their code.
    """
    open_: list[tuple[ProfileSpan, _Node | None]] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        while open_ and open_[-1][0].end <= span.start:
            open_.pop()
        around = next((node for _, node in reversed(open_) if node is not None), None)
        node = _Node(span) if span.name in _NODES or span.name.startswith(COMPILED_REGION) else None
        if node is not None and around is not None:
            around.inside.append(node)
        elif node is not None and span.name == CALL:
            yield node
        elif around is not None:
            if span.name.startswith(LAUNCHES):
                around.launches += 1
            elif "::" in span.name and not (open_ and "::" in open_[-1][0].name):
                around.operators += 1
        if node is not None or around is not None:
            open_.append((span, node))


def _nodes(node: _Node) -> Iterator[_Node]:
    yield node
    for child in node.inside:
        yield from _nodes(child)


def _tallies(call: _Node) -> dict[_Key, _Tally]:
    found: dict[_Key, _Tally] = {}

    def walk(node: _Node, parent: str | None) -> None:
        for child, guard in _called_codes(node):
            key = (str(child.compile_id), parent)
            _add(found.setdefault(key, _Tally()), child, guard)
            walk(child, child.compile_id)

    walk(call, None)
    return found


def _called_codes(node: _Node) -> Iterator[tuple[_Node, float]]:
    """The compiled codes that run inside one, each with the seconds of the lookup that found it."""
    guard = 0.0
    for child in node.inside:
        if child.compile_id is not None:
            yield child, guard
        guard = child.span.seconds if child.span.name == CACHE_LOOKUP else 0.0


def _add(tally: _Tally, node: _Node, guard: float) -> None:
    graphs = [child.span for child in node.inside if child.span.name == GRAPH]
    entered = graphs[0].start if graphs else node.span.start
    before = entered - node.span.start - sum(span.seconds for span in _excluded_spans(node) if span.start < entered)
    tally.calls += 1
    tally.graphs += len(graphs)
    tally.guard += guard
    tally.before += before
    tally.after += _own_seconds(node) - before
    tally.operators += node.operators
    tally.launches += node.launches


def _own_seconds(node: _Node) -> float:
    return node.span.seconds - sum(span.seconds for span in _excluded_spans(node))


def _excluded_spans(node: _Node) -> Iterator[ProfileSpan]:
    """The nested spans that are not own time. A lookup that found no code counts as own time."""
    for position, child in enumerate(node.inside):
        found = any(after.compile_id is not None for after in node.inside[position + 1 : position + 2])
        if child.span.name != CACHE_LOOKUP or found:
            yield child.span


def _use(key: _Key, tallies: Sequence[_Tally]) -> CodeRun:
    return CodeRun(
        *key,
        calls=fmean(tally.calls for tally in tallies),
        graphs=fmean(tally.graphs for tally in tallies),
        guard=median(tally.guard for tally in tallies),
        before=max(0.0, median(tally.before for tally in tallies)),
        after=max(0.0, median(tally.after for tally in tallies)),
        operators=fmean(tally.operators for tally in tallies),
        launches=fmean(tally.launches for tally in tallies),
    )
