"""Choose the nodes of a call from the best evidence: the scheduler, the kernel's comment, or the inference."""

from __future__ import annotations

from dynadiag.kernels.comments import Comment
from dynadiag.kernels.cost import is_product
from dynadiag.kernels.graph_parser import PrintedGraph
from dynadiag.kernels.module_parser import ModuleCall, ParsedModule
from dynadiag.kernels.scheduler_operations import backward_slice

__all__ = ["add_inlined_nodes", "nodes_of_call"]


def nodes_of_call(
    module: ParsedModule, graph: PrintedGraph, call: ModuleCall, scheduled: tuple[str, ...], inferred: tuple[str, ...]
) -> tuple[tuple[str, ...], str]:
    """Return the nodes of a call and the evidence for them (`KernelCall.evidence`)."""
    if scheduled:
        return scheduled, "scheduler"
    definition = module.definitions.get(call.kernel)
    alone = definition is not None and sum(one.kernel == call.kernel for one in module.calls) == 1
    if definition is not None and alone and definition.comment and definition.comment.nodes:
        joined = tuple(name for name in inferred if graph.nodes[name].operator == "cat")
        return tuple(dict.fromkeys(_comment_nodes(definition.name, definition.comment, graph) + joined)), "comment"
    if inferred:
        return inferred, "dataflow"
    if call.comment and call.comment.sources:
        return tuple(name for name in call.comment.sources if name in graph.nodes), "comment"
    around = tuple(graph.users.get(call.subgraph, ()))
    return around, "around" if around else "none"


def add_inlined_nodes(module: ParsedModule, graph: PrintedGraph, nodes: tuple[str, ...]) -> tuple[str, ...]:
    """Return `nodes` plus the nodes of their subgraphs that have no code of their own, such as a score function."""
    given = {name for node in nodes if node in graph.nodes for name in graph.nodes[node].inputs}
    inlined = graph.returns.keys() & given - {call.subgraph for call in module.calls}
    return (*nodes, *(name for name, node in graph.nodes.items() if node.target and node.subgraph in inlined))


def _comment_nodes(name: str, comment: Comment, graph: PrintedGraph) -> tuple[str, ...]:
    """The nodes of a kernel's comment that the kernel computes.

    Inductor also lists nodes that were inlined from elsewhere. The result has the nodes between what the kernel reads
    and what it returns, without the library call whose argument it prepares.
    """
    ends, reads = set(comment.returns), set(comment.reads)
    nodes = [node for node in comment.nodes if node in graph.nodes]
    if ends and ends.issubset(graph.nodes):
        found = backward_slice(graph, ends, set(nodes), reads - ends)
        nodes = [node for node in nodes if node in found]
    if not reads:  # the kernel fills a buffer
        nodes = [node for node in nodes if not graph.nodes[node].inputs] or nodes
    if "_tem_" in name:
        return tuple(nodes)
    own = [node for node in nodes if not is_product(graph.nodes[node])]
    return tuple(own if any(graph.nodes[node].computes for node in own) else nodes)
