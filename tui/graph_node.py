"""The graph node under the cursor: what it computes, its inputs and its users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from dynadiag.kernels.graph_parser import PrintedGraph, PrintedNode, rename
from dynadiag.render.readable_graph import attribute_name
from tui.documents import Document
from tui.location import Location
from tui.styled_text import Fragment, Line, line, one_line, printable_code

_MAX_USERS = 200  # users listed; an input may have 50,000


@dataclass(frozen=True, slots=True)
class NodeDetails:
    """A node. ``inputs`` and ``users`` are pairs of a name and a line (from 0). Inputs of the graph have the names that
    the graph is shown with.
    """

    name: str
    value: str  # such as "f32[4, 16][16, 1]cpu"; empty if not printed
    expression: str
    inputs: tuple[tuple[str, int], ...]
    users: tuple[tuple[str, int], ...]
    hidden_users: int  # number of users that are not listed


@dataclass(frozen=True)  # without slots, where the nodes of each line could not be kept
class GraphNodes:
    """The nodes of a printed graph by their lines."""

    graph: PrintedGraph

    @cached_property
    def _by_line(self) -> dict[int, PrintedNode]:
        """The node of each line, from 1. The signature of several arguments has none."""
        found: dict[int, PrintedNode] = {}
        shared = set()
        for node in self.graph.nodes.values():
            if found.setdefault(node.line, node) is not node:
                shared.add(node.line)
        return {line: node for line, node in found.items() if line not in shared}

    def on_row(self, row: int, lines: Sequence[str]) -> NodeDetails | None:
        """Return the node that a line of the text defines, from 0, or ``None`` if it defines none."""
        node = self._by_line.get(row + 1)
        if node is None:
            return None
        shown = {name: self._shown(name) for name in node.inputs}
        inputs = tuple((shown[name], self.graph.nodes[name].line - 1) for name in node.inputs)
        users = [(self._shown(name), self.graph.nodes[name].line - 1) for name in self.graph.users.get(node.name, ())]
        if node.name in self.graph.returns.get(node.subgraph, ()):
            ends = (at for at in range(row + 1, len(lines)) if lines[at].lstrip().startswith("return"))
            users += [("output", at) for at in (next(ends, None),) if at is not None]
        expression = rename(node.text, shown) if node.target else ""
        hidden = max(0, len(users) - _MAX_USERS)
        return NodeDetails(
            self._shown(node.name), node.annotation, expression, inputs, tuple(users[:_MAX_USERS]), hidden
        )

    def _shown(self, name: str) -> str:
        """The name of a node in the readable graph. That of an input may be a node's, too."""
        printed = self.graph.nodes[name].printed_name
        readable = attribute_name(printed)
        return f"input.{readable}" if readable != printed and readable in self.graph.nodes else readable


def node_lines(node: NodeDetails | None, document: Document | None, compile_id: str | None) -> list[Line]:
    """Return the details of the node under the cursor, with the line numbers of its pane, which shows ``document``."""
    if node is None or document is None:
        return [line(("no node of the graph is defined on this line or made of it", "dim"))]
    parts: list[str | Fragment] = [(node.name, "key"), (f"  {one_line(node.value)}", "good")]
    made = [line(*parts, (f"  {printable_code(node.expression)}", ""))]
    for role, pairs in (("input", node.inputs), ("user", node.users)):
        if not pairs:
            made.append(line((f"no {role}", "dim")))
        for name, place in pairs:
            target = Location("code", compile_id, document=document.ref.key, line=place + 1)
            shown = document.line_of(place) + 1
            made.append(line((f"{role:<6} ", "dim"), name, (f"  line {shown:,}", "dim"), to=target))
    if node.hidden_users:
        made.append(line((f"and {node.hidden_users:,} more users", "dim")))
    return made
