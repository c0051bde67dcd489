"""The graph node under the cursor: what it computes, its inputs and users, where it was made; what a line became."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from dynadiag.explanation.formatting import count, list_some
from dynadiag.kernels.document_links import NodeOrigin
from dynadiag.kernels.graph_parser import PrintedGraph, PrintedNode, rename
from dynadiag.recording.code_origin import is_user_file
from dynadiag.recording.records import Frame
from dynadiag.recording.torch_text.sources import attribute_name
from dynadiag.render.paths import short_chain, short_place
from tui.documents import Document
from tui.line_links import LineKey, LineLinks
from tui.location import Location, source_place
from tui.styled_text import Fragment, Line, line, one_line, printable_code

if TYPE_CHECKING:
    from tui.code_panes import CodePaneModel


_MAX_MODULES = 200  # modules listed of what a line became
_MAX_OPERATORS = 4  # operators named of each
_OPERATOR = re.compile(r" = .*?([A-Za-z_]\w*)\(| = [^ ]+ (\S+) ")  # of a node in the readable form: a call, or a sign
_MAX_NAMED = 3  # modules named of a node that may be of several
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


NO_NODE = line(("no node of the graph is defined on this line or made of it", "dim"))


def node_lines(node: NodeDetails, document: Document, compile_id: str | None) -> list[Line]:
    """Return the details of the node under the cursor, with the line numbers of its pane, which shows ``document``."""
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


def node_origins(node: str, document: Document, board: CodePaneModel) -> tuple[NodeOrigin, ...]:
    """Return the origins of a node of a graph, each once: of a later graph those of Dynamo's nodes that it is of."""
    sources = board.sources(document.ref.key)
    names = (node,) if sources is None else sources.get(node, ())
    return tuple(dict.fromkeys(board.origins[name] for name in names if name in board.origins))


def origin_lines(origins: Sequence[NodeOrigin], callers: Sequence[Frame], compile_id: str | None) -> list[Line]:
    """Return the module of a node and its source line, and a line for each frame, the innermost first."""
    if not origins:
        return []
    modules = list(dict.fromkeys(one_line(origin.modules[-1]) for origin in origins if origin.modules))
    frames = [*callers, *origins[0].frames]
    own = [frame for frame in frames if is_user_file(frame.file)] or frames
    named: list[str | Fragment] = [("of     ", "dim"), (list_some(modules, _MAX_NAMED), "key"), "  "] if modules else []
    target = source_place(own[-1].file, own[-1].line, compile_id) if own else None
    made = [line(*(named or [("at     ", "dim")]), short_chain(own), to=target)]
    for frame in reversed(frames):
        if frame.line is not None:
            parts = ("called ", "dim"), short_place(frame), (f"  in {one_line(frame.function)}", "dim")
            made.append(line(*parts, to=source_place(frame.file, frame.line, compile_id)))
    return made


def called_lines(keys: Set[LineKey], document: Document, links: LineLinks, board: CodePaneModel) -> list[Line]:
    """Return what source lines became by what they call, a line for each module, in the order of the shown graph.

    There are none where the lines called nothing that became a node.
    """
    rows = links.called_from(keys)
    if set(rows) <= set(links.lines_of(keys)):
        return []
    groups: dict[str, list[tuple[int, str]]] = {}  # the lines and the operators of each module
    for row in rows:
        call = _OPERATOR.search(document.lines[row])
        if row in links.names and call:  # neither an input nor an attribute
            groups.setdefault(_group(row, document, links, board), []).append((row, call[1] or call[2]))
    if not groups:
        return []
    made = [line((f"{count(sum(map(len, groups.values())), 'node')} made by this call", "strong"))]
    width = max(map(len, groups))
    for module, calls in list(groups.items())[:_MAX_MODULES]:
        first = document.row_of(calls[0][0]) + 1
        operators = Counter(operator for _, operator in calls)
        named = [f"{one_line(name)}{f' x {times}' if times > 1 else ''}" for name, times in operators.items()]
        parts: list[str | Fragment] = [(f"{module:<{width}}  ", "key"), f"{count(len(calls), 'node'):<9} "]
        target = Location("code", board.compile_id, document=document.ref.key, line=first)
        made.append(line(*parts, (list_some(named, _MAX_OPERATORS), "dim"), to=target))
    if len(groups) > _MAX_MODULES:
        made.append(line((f"and {len(groups) - _MAX_MODULES:,} more modules", "dim")))
    return made


def _group(row: int, document: Document, links: LineLinks, board: CodePaneModel) -> str:
    """The innermost module of the node on a line; without one, its source line."""
    known = node_origins(links.names[row], document, board)
    modules = list(dict.fromkeys(origin.modules[-1] for origin in known if origin.modules))
    if modules:
        return list_some(list(map(one_line, modules)), _MAX_NAMED)
    places = (short_chain(origin.frames[-1:]) for origin in known if origin.frames)
    return next(places, None) or next((f"{file.rpartition('/')[2]}:{at}" for file, at in links.keys_of(row)), "-")
