"""The details of a graph node as lines. Enter on an input or a user goes to it."""

from __future__ import annotations

from tui.graph_node import NodeDetails
from tui.location import Location
from tui.styled_text import Fragment, Line, line, one_line, printable_code

__all__ = ["node_lines"]


def node_lines(node: NodeDetails | None, document: str, compile_id: str | None) -> list[Line]:
    """Return the details of the node under the cursor."""
    if node is None:
        return [line(("this line defines no node", "dim"))]
    parts: list[str | Fragment] = [(node.name, "key"), (f"  {one_line(node.value)}", "good")]
    made = [line(*parts, (f"  {printable_code(node.expression)}", ""))]
    for role, pairs in (("input", node.inputs), ("user", node.users)):
        if not pairs:
            made.append(line((f"no {role}", "dim")))
        for name, place in pairs:
            target = Location("code", compile_id, document=document, line=place + 1)
            made.append(line((f"{role:<6} ", "dim"), name, (f"  line {place + 1:,}", "dim"), to=target))
    if node.hidden_users:
        made.append(line((f"and {node.hidden_users:,} more users", "dim")))
    return made
