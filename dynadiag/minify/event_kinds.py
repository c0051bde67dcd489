"""The names by which a search asks the hooks in a trial's process for what they tell."""

from __future__ import annotations

__all__ = ["COMPARED_GRAPH_CALLS", "FAILED_LOWERING", "GRAPH_CALLS", "INDUCTOR_RANDOM", "LOWERING_STARTED"]

GRAPH_CALLS = "call"  # recorded as a class of points: "begin run 0 3" and "end run 0 3", graph and call by number
COMPARED_GRAPH_CALLS = "compared call"  # the same, and each call of a graph compared with its uncompiled self
INDUCTOR_RANDOM = "own random numbers"  # besides: Inductor draws its own, so values are not compared
FAILED_LOWERING = (
    "origin"  # the nodes of a graph tried by itself that the operator came from which could not be lowered
)
LOWERING_STARTED = "begun"  # the same of each operator before it is lowered, with a space between their names
