"""A generated module with the graphs that it was made from, and its kernel calls.

The nodes of a call lead to the user's lines through the lowered graph and Dynamo's graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from math import gcd

from dynadiag.grouping import grouped
from dynadiag.kernels.align import AlignedStatement
from dynadiag.kernels.cost import RooflineCost
from dynadiag.kernels.graph_parser import PrintedGraph, PrintedNode, SourceLine
from dynadiag.kernels.module_parser import KernelDefinition, ParsedModule
from dynadiag.kernels.triton_artifacts import TritonArtifact


@dataclass(frozen=True, slots=True)
class RefusedFusion:
    """A call that the scheduler considered to fuse with another one, and did not.

    `comes` says whether it comes "before" or "after" the other one, `reason` is in torch's words. `between` are the
    kernels that read what the first of the two computes, and compute what the second one reads.
    """

    call: int  # its index in its recording
    name: str
    call_number: int
    comes: str
    reason: str
    between: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One call of a generated kernel or of a library: a row of the kernel listing.

    `nodes` are the nodes of the lowered graph that it computes, `views` those that only view its inputs. `evidence`
    says where that is known from: "scheduler" (the recorder asked Inductor), "comment" (the generated code says it),
    "dataflow" (inferred from the texts), "around" (only the branch or loop that contains the call is known) or "none"
    (no mapping). `source_lines` are the user's lines of `nodes`, `view_lines` those of `views`. `enclosing_nodes` are
    the nodes (``cond``, ``while_loop``) whose branch or loop the call is in, the innermost first.
    """

    index: int  # in its recording
    compile_id: str
    stage: str | None  # "forward", "backward" or "inference"
    event: int  # the event of the generated module
    name: str
    language: str  # "cpp", "triton", "extern", or another backend's name
    call_number: int  # of this kernel's calls in the module, from 1
    line: int  # of the call in the module, from 1
    text: str
    definition: KernelDefinition | None
    nodes: tuple[str, ...]
    views: tuple[str, ...]
    ops: tuple[str, ...]  # the nodes' operators, each once
    operator_lines: tuple[tuple[str, str], ...]  # the operators with the text of their source lines
    dynamo_nodes: tuple[str, ...]
    source_lines: tuple[SourceLine, ...]
    view_lines: tuple[SourceLine, ...]
    evidence: str
    grid: str | None
    cost: RooflineCost
    device: str | None
    cache: str | None  # outcome of the FX graph cache: "hit", "miss" or "bypass"
    partition: str | None
    fallback: str | None  # why Inductor fell back to ATen, if it did
    # The nodes of each statement of a generated kernel, by its line in the module
    statements: tuple[AlignedStatement, ...] = ()
    enclosing_nodes: tuple[str, ...] = ()
    refused: tuple[RefusedFusion, ...] = ()  # calls of the module that it was not fused with
    artifact: TritonArtifact | None = None  # the kernel as the run compiled it, if recorded

    def is_defined_at(self, line: int) -> bool:
        """Whether a line of the module belongs to the kernel that it calls."""
        own = self.definition
        return own is not None and (line == own.line or own.first_line <= line <= own.last_line)


@dataclass(frozen=True)
class GeneratedModule:
    """A generated module, the graph that it was made from, Dynamo's graph, and its calls."""

    event: int
    compile_id: str
    parsed: ParsedModule
    graph: PrintedGraph
    graph_event: int | None
    dynamo: PrintedGraph
    dynamo_sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    calls: tuple[KernelCall, ...] = ()

    @cached_property
    def source_text(self) -> Mapping[SourceLine, str]:
        nodes = [*self.dynamo.nodes.values(), *self.graph.nodes.values()]
        return {
            node.source_line: node.source_text for node in nodes if node.source_line is not None and node.source_text
        }

    @cached_property
    def dynamo_by_line(self) -> Mapping[SourceLine, tuple[str, ...]]:
        """Dynamo's nodes of each user line."""
        nodes = (node for node in self.dynamo.nodes.values() if node.target)
        found = grouped((node.source_line, node.name) for node in nodes if node.source_line is not None)
        return {place: tuple(names) for place, names in found.items()}

    @cached_property
    def dynamo_by_run(self) -> Mapping[tuple[str, SourceLine], tuple[str, ...]]:
        """Dynamo's nodes of each node and its line, for a line that was run several times, by their order.

        Dynamo's graph has each operator of the line as often as the line was run, or a multiple of it. If an operator
        of this graph is there as often, or a multiple of it, its nodes are dealt out in the same order. A backward
        graph has an order of its own.
        """
        if self.parsed.stage == "backward":
            return {}
        ours: dict[SourceLine, dict[str, list[str]]] = {}
        for node in self.graph.nodes.values():
            for line in node.source_lines if node.target else ():
                if line in self.dynamo_by_line:
                    ours.setdefault(line, {}).setdefault(node.target, []).append(node.name)
        found: dict[tuple[str, SourceLine], tuple[str, ...]] = {}
        for place, targets in ours.items():
            theirs = grouped((self.dynamo.nodes[name].target, name) for name in self.dynamo_by_line[place])
            runs = gcd(*map(len, theirs.values()))
            parts = [tuple(name for names in theirs.values() for name in _share(names, at, runs)) for at in range(runs)]
            for names in targets.values():
                if len(names) % runs == 0:
                    found |= {(name, place): parts[at] for at in range(runs) for name in _share(names, at, runs)}
        return found

    @cached_property
    def dynamo_by_name(self) -> Mapping[str, tuple[str, ...]]:
        """Dynamo's nodes of each printed name, which several subgraphs may share."""
        found = grouped((node.printed_name, name) for name, node in self.dynamo.nodes.items())
        return {printed: tuple(names) for printed, names in found.items()}


def _share(names: Sequence[str], at: int, of: int) -> Sequence[str]:
    """The part of a list that is dealt to one of several in order."""
    size = len(names) // of
    return names[at * size : (at + 1) * size]


def dynamo_nodes_of(unit: GeneratedModule, node: PrintedNode) -> tuple[str, ...]:
    """Return the Dynamo nodes that a node came from: as torch reported, else those of the same user line.

    A line that is run several times, for each layer of a model, has the nodes of all of them: then those of the same
    run are meant, as far as the order of both graphs shows it.
    """
    known = reported_dynamo_nodes(unit, node)
    here = (
        unit.dynamo_by_run.get((node.name, line)) or unit.dynamo_by_line.get(line, ())
        for line in (() if known else node.source_lines)
    )
    return known or tuple(chain.from_iterable(here))


def reported_dynamo_nodes(unit: GeneratedModule, node: PrintedNode) -> tuple[str, ...]:
    """Return the Dynamo nodes that torch reported for a node.

    torch reports names, which several graphs may share: then those on the node's source line are meant. In a branch
    that was traced again for its backward the names are the branch's own, not Dynamo's.
    """
    said = tuple(one for name in unit.dynamo_sources.get(node.name, ()) for one in unit.dynamo_by_name.get(name, ()))
    here = tuple(name for name in said if unit.dynamo.nodes[name].source_line == node.source_line)
    return here if node.subgraph else here or said


def source_lines_of(unit: GeneratedModule, names: Iterable[str]) -> tuple[SourceLine, ...]:
    """Return the user's lines of nodes of the lowered graph, or those of their users if they have none."""
    nodes = [unit.graph.nodes[name] for name in names if name in unit.graph.nodes]
    return own_source_lines(unit, nodes) or own_source_lines(unit, _readers(unit, nodes))


def own_source_lines(unit: GeneratedModule, nodes: Iterable[PrintedNode]) -> tuple[SourceLine, ...]:
    """Return the user's lines of exactly these nodes, each once."""
    found: dict[SourceLine, None] = {}
    for node in nodes:
        of_dynamo = (unit.dynamo.nodes[name].source_line for name in dynamo_nodes_of(unit, node))
        first = next((place for place in of_dynamo if place is not None), None) if not node.source_lines else None
        found.update(dict.fromkeys(node.source_lines if first is None else (first,)))
    return tuple(found)


def _readers(unit: GeneratedModule, nodes: list[PrintedNode]) -> list[PrintedNode]:
    """The users of these nodes: a node without a line (such as a random seed) was made for them."""
    return [unit.graph.nodes[user] for node in nodes for user in unit.graph.users.get(node.name, ())]
