"""A difference between two runs, and the order of the stages at which runs can differ."""

from __future__ import annotations

from dataclasses import dataclass

ENVIRONMENT = "environment"  # also configuration and source: what a run was given
COMPILED_STAGES = ("break", "recompile", "guard", "dynamo", "aot", "post_grad", "kernel", "cache", "values")
SIGNS = {"added": "+", "removed": "-", "changed": "~", "moved": ">"}  # of the kinds of a `NodeDifference`


@dataclass(frozen=True, slots=True)
class NodeDifference:
    """A node of a graph that was added, removed, changed or only moved. `line` is of the second run."""

    kind: str
    before: str | None
    after: str | None
    file: str | None
    line: int | None


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference. `compile_ids` are of the first and the second run, file and line of the second.

    `graph` is torch's name of the graph ("forward"), `nodes` are its differences. `details` are lines of text for a
    full report: the further guards, or a diff of two sources.
    """

    stage: str
    compile_ids: tuple[str | None, str | None]
    file: str | None
    line: int | None
    text: str
    graph: str | None = None
    nodes: tuple[NodeDifference, ...] = ()
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences of two runs, in the order of the stages. `first` is the index of the one that leads.

    `notes` say what could not be compared.
    """

    same: bool
    first: int | None
    differences: tuple[Difference, ...]
    notes: tuple[str, ...] = ()
