"""Compare two recordings: match their compiles, and find the first stage at which what was compiled differs.

`match_compiles` pairs compiles by code and content. `canonical_graph` gives a graph without names, addresses and line
numbers; `graph_changes` and `first_change` compare two of them.
"""

from __future__ import annotations

from dynadiag.diff.canonical_graph import CanonicalGraph, CanonicalNode, canonical_graph
from dynadiag.diff.compile_matching import CompilePair, GraphReader, match_compiles
from dynadiag.diff.graph_changes import NodeChange, first_change, graph_changes

__all__ = [
    "CanonicalGraph",
    "CanonicalNode",
    "CompilePair",
    "GraphReader",
    "NodeChange",
    "canonical_graph",
    "first_change",
    "graph_changes",
    "match_compiles",
]
