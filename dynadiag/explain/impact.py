"""What each root cause led to: how often it was met, which frames and graphs it cut, which recompiles met it again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dynadiag.explain.causes import roots
from dynadiag.explain.frame_origin import is_torch_file
from dynadiag.explain.runtime_cost import BreakCost, WarmCalls, costs
from dynadiag.recording.records import Break, Graph, Recompile, SkippedFrame
from dynadiag.recording.torch_names import is_resume_function

__all__ = ["Impact", "impacts"]


@dataclass(frozen=True, slots=True)
class Impact:
    """One root cause and what came of it. Compile ids are in the order torch met them, without repeats."""

    root: Break
    met: int  # reports of it, its own among them
    compile_ids: tuple[str, ...]
    functions: tuple[str, ...]  # of the frames it split, as the user named them
    graphs: int  # graphs that ended at it
    recompiles: tuple[str, ...]  # compile ids of recompiles that met it again
    left: tuple[SkippedFrame, ...] = ()  # what follows it and was not compiled at all
    cost: BreakCost | None = None  # in a warm call, where that was measured and meets it

    @property
    def is_torchs(self) -> bool:
        """Whether torch splits the graph in its own code, where the program cannot mend it (an optimizer's step).

        An exception is not: it ends the program, wherever it was raised.
        """
        return is_torch_file(self.root.span.file) and not self.root.fatal


def impacts(
    breaks: Sequence[Break],
    graphs: Sequence[Graph],
    recompiles: Sequence[Recompile],
    warm: WarmCalls | None = None,
    skipped: Sequence[SkippedFrame] = (),
) -> tuple[Impact, ...]:
    """The impact of each root, the worst first.

    That is: fatal ones, then by what they cost where that was measured, then by graphs ended, then by reports, then in
    order. Those in torch's own code stand last.
    """
    cut, rests = _dynamo_graphs(graphs), [item for item in skipped if is_resume_function(item.function)]
    again = {item.compile_id for item in recompiles}
    paid = costs(breaks, warm)
    found = [replace(_impact(*each, cut, again, rests), cost=paid.get(each[0].index)) for each in _by_root(breaks)]
    return tuple(sorted(found, key=_worst_first))


def _worst_first(item: Impact) -> tuple[bool, bool, float, int, int]:
    seconds = item.cost.seconds if item.cost else 0.0
    return item.is_torchs, not item.root.fatal, -seconds, -item.graphs, -item.met


def _by_root(breaks: Sequence[Break]) -> list[tuple[Break, list[Break]]]:
    entries: dict[int, tuple[Break, list[Break]]] = {item.index: (item, [item]) for item in roots(breaks)}
    for item in breaks:
        if item.cause is not None:
            entries[item.cause][1].append(item)
    return list(entries.values())


def _impact(root: Break, entries: list[Break], cut: set[str], again: set[str], rests: Sequence[SkippedFrame]) -> Impact:
    ids = tuple(dict.fromkeys(item.compile_id for item in entries))
    return Impact(
        root=root,
        met=len(entries),
        compile_ids=ids,
        functions=tuple(dict.fromkeys(item.function for item in entries)),
        graphs=sum(compile_id in cut for compile_id in ids),
        recompiles=tuple(compile_id for compile_id in ids if compile_id in again),
        left=_left(entries, rests),
    )


def _left(entries: Sequence[Break], rests: Sequence[SkippedFrame]) -> tuple[SkippedFrame, ...]:
    """The functions that go on uncompiled where one of these breaks split them: outermost first, without repeats."""
    split = {(frame.file, frame.line) for item in entries for frame in item.user_stack}
    return tuple(dict.fromkeys(rest for rest in reversed(rests) if (rest.file, rest.line) in split))


def _dynamo_graphs(graphs: Sequence[Graph]) -> set[str]:
    """The compiles that handed a graph to a backend (one at most each: a break ends it)."""
    return {graph.compile_id for graph in graphs if graph.stage == "dynamo"}
