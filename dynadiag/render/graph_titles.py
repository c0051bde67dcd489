"""The titles of the graphs of a compile, in reports and in the browser."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dynadiag.recording.records import Graph

# The title by stage; of any other stage it is "STAGE graph".
_STAGE_NAMES = {
    "dynamo": "Dynamo's graph",
    "before_pre_grad": "before pre-grad passes",
    "pre_grad": "after pre-grad passes",
    "joint": "joint graph",
    "before_joint": "before joint-graph passes",
    "after_joint": "after joint-graph passes",
    "before_post_grad": "{direction}, before passes",
    "post_grad": "{direction}, after passes",
}


@dataclass(frozen=True, slots=True)
class GraphTitle:
    """The title of a graph. ``direction``: "forward", "backward" or "inference"; "" before AOTAutograd split it."""

    text: str
    direction: str


def graph_titles(graphs: Sequence[Graph]) -> tuple[GraphTitle, ...]:
    """Return the title of each graph of a compile."""
    return tuple(
        GraphTitle(
            _STAGE_NAMES.get(graph.stage, "{stage} graph").format(direction=direction or "graph", stage=graph.stage),
            direction,
        )
        for graph, direction in zip(graphs, _graph_directions(graphs), strict=True)
    )


def _graph_directions(graphs: Sequence[Graph]) -> Iterator[str]:
    """The direction of each graph of a compile.

    Inductor takes the forward graph through its stages, and then, or at the first call of it, the backward graph: a
    stage that the forward graph had comes again.
    """
    own, seen, has_backward = "", set[str](), False
    for graph in graphs:
        if graph.stage in ("forward", "inference"):
            own, seen, has_backward = graph.stage, set(), False
        has_backward = has_backward or graph.stage == "backward"
        yield "backward" if graph.stage == "backward" or (graph.stage in seen and has_backward) else own
        seen.add(graph.stage)
