"""What a pass did to a graph, in the trial's process: the nodes that it removed, changed or added, and their lines."""

from __future__ import annotations

from typing import Any

from torch.fx import Graph, Node

from dynadiag.torch_private import bisect as torch_private
from dynadiag.trial.context import TRIAL
from dynadiag.trial.events import PassApplied


class GraphBefore:
    """A graph before a pass, as text: the pass changes the nodes themselves. Empty where no trial asks for passes."""

    def __init__(self, graph: Graph) -> None:
        nodes = [n for n in graph.nodes if n.op != "output"] if "pass" in TRIAL.plan.record else []
        self._nodes = {node.name: (_computed(node), torch_private.user_line(node)) for node in nodes}

    def report_changes(self, key: str, graph: Graph) -> None:
        """Report what the pass of this key removed, else what it changed, else what it added."""
        if not self._nodes:
            return
        now = {node.name: node for node in graph.nodes if node.op != "output"}
        added = [node for name, node in now.items() if name not in self._nodes]
        gone = self._nodes.keys() - now.keys()
        changed = gone or {name for name, (text, _) in self._nodes.items() if _computed(now[name]) != text}
        if changed:
            lines = [line for name, (_, line) in self._nodes.items() if name in changed and line is not None]
            ordered = tuple(name for name in self._nodes if name in changed)
            names = tuple(node.name for node in added)
            TRIAL.send(PassApplied(key, ordered, tuple(dict.fromkeys(lines)), names))
        else:
            report_nodes(key, added)


def report_nodes(key: str, nodes: list[Node]) -> None:
    """Report the nodes that a pass concerns."""
    if nodes and "pass" in TRIAL.plan.record:
        TRIAL.send(PassApplied(key, tuple(node.name for node in nodes), tuple(torch_private.user_lines(nodes))))


def _computed(node: Node) -> tuple[Any, ...]:
    return node.op, node.target, str(node.args), str(node.kwargs), torch_private.copied_arguments(node)
