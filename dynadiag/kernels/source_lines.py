"""Find the user's source line of each node of a graph: a pipeline of steps over a printed graph.

torch prints a source line above most nodes. Each step mends one case in which the line is missing or not the user's:
nodes that a pass inserted, bodies that were traced again, graphs from the FX graph cache, code of torch's own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import cached_property

from dynadiag.kernels.graph_parser import PrintedGraph, PrintedNode, SourceLine
from dynadiag.recording.code_origin import is_user_file
from dynadiag.recording.records import Node

# Operators that have different names in Dynamo's graph and in ATen's.
_MATRIX_PRODUCTS = frozenset({"linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "mv", "dot"})
_ATEN_NAMES = {
    "truediv": "div",
    "iadd": "add",
    "isub": "sub",
    "imul": "mul",
    "itruediv": "div",
    "conv2d": "convolution",
}
_MAX_NODES = 5000  # nodes; matching more takes longer than a user waits
_MAX_REPLACED = 100  # nodes that one node can stand for; a layer of attention has 20
_EMPTY = PrintedGraph({}, {})


@dataclass(frozen=True)
class CompileContext:
    """What else is known about the compile of a graph.

    `dynamo` is Dynamo's graph and `dynamo_nodes` are its nodes as the recorder stored them (none in a foreign log).
    `dynamo_sources` maps nodes to the Dynamo nodes that torch reported for them. `before_passes` is AOTAutograd's
    graph, which Inductor's passes begin with, `forward` the forward graph of a backward one. `from_cache`: the graph is
    from the FX graph cache.
    """

    dynamo: PrintedGraph = _EMPTY
    dynamo_nodes: Sequence[Node] = ()
    dynamo_sources: Mapping[str, Sequence[str]] = field(default_factory=dict)
    before_passes: PrintedGraph = _EMPTY
    forward: PrintedGraph | None = None
    from_cache: bool = False

    @cached_property
    def reported(self) -> frozenset[str]:
        """The nodes for which torch reported a node of Dynamo's graph."""
        names = {node.printed_name for node in self.dynamo.nodes.values()}
        return frozenset(name for name, sources in self.dynamo_sources.items() if not names.isdisjoint(sources))

    @cached_property
    def torch_callers(self) -> Mapping[str, SourceLine]:
        """The user's line that called torch, for each Dynamo node whose own line is in torch.

        When no Dynamo node has a line, all nodes are mapped.
        """
        spans = ((node.name, node.span.file, node.span.line) for node in self.dynamo_nodes)
        lines = {name: SourceLine(file, line) for name, file, line in spans if file and line and is_user_file(file)}
        has_lines = any(node.source_line for node in self.dynamo.nodes.values())
        return {
            name: lines[name]
            for name, node in self.dynamo.nodes.items()
            if name in lines and (_is_in_torch(node) or not has_lines)
        }


def locate(graph: PrintedGraph, around: CompileContext) -> PrintedGraph:
    """Return the graph with the user's source lines, as far as they are known."""
    for step in STEPS:
        graph = step(graph, around)
    return graph


def locate_dynamo(around: CompileContext) -> PrintedGraph:
    """Return Dynamo's graph itself with the user's source lines."""
    own = {name: (name,) for name in around.torch_callers}
    return locate_torch_frames(around.dynamo, replace(around, dynamo_sources=own))


def locate_replaced_nodes(graph: PrintedGraph, around: CompileContext) -> PrintedGraph:
    """Give computing nodes without a line the lines of the nodes that they replaced.

    A pass that rewrites several nodes seldom says which of its nodes computes which of them: each new node has the
    lines of all. If none is known, the line of a user of the node is taken, unless torch reported where it came from.
    """
    own = [name for name, node in graph.nodes.items() if node.computes and not node.source_line and not node.subgraph]
    replaced = replaced_nodes(around.before_passes, graph) if own else {}
    found: dict[str, SourceLine] = {}
    several: dict[str, tuple[SourceLine, ...]] = {}
    for name in own:
        old = (around.before_passes.nodes[before] for before in replaced.get(name, ()))
        if lines := tuple(dict.fromkeys(node.source_line for node in old if node.computes and node.source_line)):
            found[name], several[name] = lines[0], lines
    for name in reversed(own):
        users = (found.get(user) or graph.nodes[user].source_line for user in graph.users.get(name, ()))
        line = next((one for one in users if one is not None), None)
        if line is not None and name not in found and name not in around.reported:
            found[name] = line
    located = graph.with_source_lines(found)
    nodes = {name: replace(located.nodes[name], replaced_lines=lines) for name, lines in several.items()}
    return replace(located, nodes={**located.nodes, **nodes})


def replaced_nodes(before: PrintedGraph, after: PrintedGraph) -> dict[str, tuple[str, ...]]:
    """Return the nodes that each new node of a graph replaced, in the order of `before`.

    A node that is in both graphs, or an output, tells: where it read an old node and reads a new one now, the new one
    has the old one's value. So what leads to the new one, from nodes that are in both graphs, replaced what led to the
    old one.
    """
    kept = {name for name, node in after.nodes.items() if name in before.nodes and _is_same(before.nodes[name], node)}
    reads: list[tuple[Sequence[str | None], Sequence[str | None]]] = [
        (before.nodes[name].inputs, after.nodes[name].inputs) for name in kept if after.nodes[name].target
    ]
    reads.append((before.returns.get("", ()), after.returns.get("", ())))
    pairs = {pair for old, new in reads if len(old) == len(new) for pair in zip(old, new, strict=True)}
    found: dict[str, set[str]] = {}
    for old, new in pairs:
        if old and new and kept.isdisjoint((old, new)) and old in before.nodes and new in after.nodes:
            left, made = _leading_to(old, before, kept), _leading_to(new, after, kept)
            for name in made if left else ():
                found.setdefault(name, set()).update(left)
    order = {name: place for place, name in enumerate(before.nodes)}
    return {name: tuple(sorted(names, key=order.__getitem__)) for name, names in found.items()}


def _is_same(before: PrintedNode, after: PrintedNode) -> bool:
    """Whether a name means the same value: a backward graph has values of the forward graph as its inputs."""
    return before.target == after.target or not after.target


def _leading_to(name: str, graph: PrintedGraph, kept: Set[str]) -> set[str]:
    """The nodes that lead to a node, with it, up to those that are kept. Empty if they are too many to tell."""
    found, queue = {name}, [name]
    while queue:
        inputs = {one for one in graph.nodes[queue.pop()].inputs if one in graph.nodes} - kept - found
        found |= inputs
        queue += inputs
        if len(found) > _MAX_REPLACED:
            return set()
    return found


def locate_retraced_bodies(graph: PrintedGraph, around: CompileContext) -> PrintedGraph:
    """Give nodes of bodies that were traced again the lines of the nodes that they match in Dynamo's graph.

    Such bodies are a score function of ``flex_attention`` or a step of ``scan``. Their nodes have no line, or the line
    of the call. A node without a match gets the line of the call.
    """
    found: dict[str, SourceLine] = {}
    for call, bodies in _subgraphs_by_line(graph).items():
        originals = _subgraphs_by_line(around.dynamo).get(call, [])
        pairs = zip(bodies, originals, strict=True) if len(bodies) == len(originals) else [(one, "") for one in bodies]
        for body, original in pairs:
            nodes = [node for node in _computing_nodes(graph, [body]) if node.source_line in (None, call)]
            others = _computing_nodes(around.dynamo, [original] if original else originals)
            found |= dict.fromkeys([node.name for node in nodes], call) | _match(nodes, others)
    return graph.with_source_lines(found)


def _subgraphs_by_line(graph: PrintedGraph) -> dict[SourceLine, list[str]]:
    """The subgraphs that each call takes, in order, by the source line of the call."""
    found: dict[SourceLine, list[str]] = {}
    for node in graph.nodes.values():
        subgraphs = [name for name in node.inputs if name in graph.returns]
        lines = (graph.nodes[name].source_line for name in (node.name, *graph.enclosing_nodes(node.subgraph)))
        if subgraphs and (line := next((line for line in lines if line), None)):
            found.setdefault(line, []).extend(subgraphs)
    return found


def locate_cache_hit(graph: PrintedGraph, around: CompileContext) -> PrintedGraph:
    """Replace the lines of a graph from the FX graph cache, which are those of the program that filled the cache.

    Two programs with the same computation share a cache entry. Dynamo's graph is from this run, so the nodes of the two
    graphs are matched by their operators, in order. A node without a match takes the line that most matched nodes from
    the same foreign line got, or no line. A backward node carries the line of its forward node.
    """
    own = {node.source_line for node in around.dynamo.nodes.values() if node.source_line is not None}
    lines = {node.source_line for node in graph.nodes.values() if node.source_line is not None}
    if not around.from_cache or not own or lines <= own:
        return graph
    matching = around.forward or graph
    matched = _match(_computing_nodes(matching), _computing_nodes(around.dynamo))
    votes: defaultdict[SourceLine, Counter[SourceLine]] = defaultdict(Counter)
    for name, line in matched.items():
        if (foreign := matching.nodes[name].source_line) is not None:
            votes[foreign][line] += 1

    def moved(node: PrintedNode) -> SourceLine | None:
        if around.forward is None and node.name in matched:
            return matched[node.name]
        if node.source_line is None or node.source_line not in votes:
            return node.source_line if node.source_line in own else None
        return votes[node.source_line].most_common(1)[0][0]

    return replace(graph, nodes={name: replace(node, source_line=moved(node)) for name, node in graph.nodes.items()})


def locate_torch_frames(graph: PrintedGraph, around: CompileContext) -> PrintedGraph:
    """Replace lines of torch's own code by the user's line that called it: ``flex_attention``, an optimizer's step.

    A printed graph names the innermost line of each node. The recorder stores Dynamo's graph with whole stacks. If
    torch did not report which Dynamo nodes a node came from, the line is taken only when it is unambiguous: all Dynamo
    nodes of the same torch line, or else all that are known, have the same caller. A branch or body that is torch's own
    (such as the default mask of ``flex_attention``) gets the line of the node that contains it.
    """
    callers: dict[SourceLine | None, set[SourceLine]] = {}
    for name, called_at in around.torch_callers.items():
        callers.setdefault(around.dynamo.nodes[name].source_line, set()).add(called_at)
    every = set(around.torch_callers.values())

    def caller(node: PrintedNode) -> SourceLine | None:
        sources = around.dynamo_sources.get(node.name, ())
        reported = [around.torch_callers[name] for name in sources if name in around.torch_callers]
        here = callers.get(node.source_line, every)
        return reported[0] if reported else min(here) if len(here) == 1 else node.source_line

    of_torch = [node for node in graph.nodes.values() if node.source_line in callers or _is_in_torch(node)]
    moved = {node.name: line for node in of_torch if (line := caller(node)) != node.source_line}
    located = graph.with_source_lines(moved)
    inner = [node for node in located.nodes.values() if node.subgraph and _is_in_torch(node)]
    return located.with_source_lines({node.name: _enclosing_line(node, located) for node in inner})


def _enclosing_line(node: PrintedNode, graph: PrintedGraph) -> SourceLine | None:
    lines = (graph.nodes[name].source_line for name in graph.enclosing_nodes(node.subgraph))
    return next((line for line in lines if line is not None), node.source_line)


STEPS: tuple[Callable[[PrintedGraph, CompileContext], PrintedGraph], ...] = (
    locate_replaced_nodes,
    locate_retraced_bodies,
    locate_cache_hit,
    locate_torch_frames,
)


def _is_in_torch(node: PrintedNode) -> bool:
    return node.source_line is not None and not is_user_file(node.source_line.file)


def _computing_nodes(graph: PrintedGraph, subgraphs: Sequence[str] | None = None) -> list[PrintedNode]:
    nodes = (node for node in graph.nodes.values() if subgraphs is None or node.subgraph in subgraphs)
    return [node for node in nodes if node.computes]


def _match(nodes: Sequence[PrintedNode], others: Sequence[PrintedNode]) -> dict[str, SourceLine]:
    """Map the name of each node to the source line of the node in `others` that matches it by operator, in order."""
    if len(nodes) > _MAX_NODES:
        return {}
    ours, theirs = ([_canonical_operator(node) for node in some] for some in (nodes, others))
    return {
        node.name: other.source_line
        for start, begin, size in SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks()
        for node, other in zip(nodes[start : start + size], others[begin : begin + size], strict=True)
        if other.source_line is not None
    }


def _canonical_operator(node: PrintedNode) -> str:
    """The name that Dynamo's and ATen's versions of an operator share."""
    name = node.operator.strip("_")
    return "product" if name in _MATRIX_PRODUCTS else _ATEN_NAMES.get(name, name)
