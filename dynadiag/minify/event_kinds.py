"""The kinds of events that a plan can ask the hooks in a trial's process to record."""

from __future__ import annotations

__all__ = ["COMPARED_GRAPH_CALLS", "FAILED_LOWERING", "GRAPH_CALLS", "INDUCTOR_RANDOM", "LOWERING_STARTED"]

GRAPH_CALLS = "call"  # begin and end of each call of a graph: "begin run 0 3", "end run 0 3" (graph 0, call 3)
COMPARED_GRAPH_CALLS = "compared call"  # as GRAPH_CALLS, and each call is compared with an uncompiled one
INDUCTOR_RANDOM = "own random numbers"  # in addition: Inductor draws its own random numbers, so values are not compared
FAILED_LOWERING = "origin"  # the nodes of the graph from which an operator came whose lowering failed
LOWERING_STARTED = "begun"  # the same nodes for each operator, before it is lowered; their names are joined by spaces
