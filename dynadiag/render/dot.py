"""`dynadiag graph`: compiles, graphs and breaks, or the nodes of one graph, as a NetworkX graph and as DOT.

The overview needs only the typed records. The picture of one graph needs its nodes, which a recording of our own
keeps as data. A log that was made without dynadiag has them as text only, which is not parsed here.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any

import networkx as nx

from dynadiag.errors import DynadiagError
from dynadiag.explanation.explanation import Explanation
from dynadiag.explanation.formatting import count
from dynadiag.recording.records import Break, Compile, Node
from dynadiag.render.clean import clean_line
from dynadiag.render.paths import fit_path, source_location
from dynadiag.render.wrap import truncate_middle

try:
    import graphviz
except ModuleNotFoundError:  # it comes with the extra `graph`
    graphviz = None

MAX_NODES = 3000  # beyond that `dot` takes minutes, and nobody can read it
_MAX_LABEL = 60  # columns of one line of a label
_PROGRAM = "program"
_TEXT_FORMATS = ("dot", "gv")
_DRAWN_FORMATS = ("svg", "png", "pdf")
_COLORS = {
    "program": "#f3f4f6",
    "frame": "#dbeafe",
    "graph": "#dcfce7",
    "break": "#fecaca",
    "placeholder": "#dbeafe",
    "get_attr": "#e0e7ff",
    "output": "#fde68a",
    "more": "#e5e7eb",
}


def overview_graph(explanation: Explanation) -> nx.DiGraph:
    """The program, each compiled frame with its graphs stage by stage, the breaks, and what was compiled after them.

    Node attributes: ``kind`` ("program", "frame", "graph", "break", "more") and ``label``; a graph's ``stage``; a
    break's ``gb_id``. Edge attribute: ``label``.
    """
    drawing = nx.DiGraph(name=explanation.run.target)
    drawing.add_node(_PROGRAM, kind="program", label=_label(explanation.run.target))
    for item in explanation.compiles:
        at = fit_path(source_location(item.file, item.line, None, explanation.run.cwd), _MAX_LABEL)
        label = _label(f"{item.function} [{item.compile_id}]", at, "" if item.outcome == "ok" else item.outcome)
        drawing.add_node(_frame(item.compile_id), kind="frame", label=label)
    latest: dict[str, str] = {}
    for item in explanation.compiles:
        frame = item.compile_id.rpartition("/")[0]
        if frame in latest:
            drawing.add_edge(_frame(latest[frame]), _frame(item.compile_id), label="compiled again")
        latest[frame] = item.compile_id
    _add_graphs(drawing, explanation)
    _add_breaks(drawing, explanation)
    for name, kind in list(drawing.nodes(data="kind")):
        if kind == "frame" and not drawing.in_degree(name):
            drawing.add_edge(_PROGRAM, name, label="")
    return _capped(drawing)


def node_graph(nodes: Sequence[Node], name: str) -> nx.DiGraph:
    """The dataflow of one graph. Node attributes: ``kind`` (the node's op), ``label``, ``target``, ``line``."""
    drawing = nx.DiGraph(name=name)
    for node in nodes:
        drawing.add_node(node.name, kind=node.op, label=_node_label(node), target=node.target, line=node.span.line)
    known = set(drawing)
    drawing.add_edges_from(
        (source, node.name, {"label": ""}) for node in nodes for source in node.inputs if source in known
    )
    return _capped(drawing)


def dot_text(graph: nx.DiGraph) -> str:
    """The graph in the DOT language. Names become ``n0``, ``n1``, ...: a colon in one would mean a port to DOT.

    Raises `DynadiagError` where the package graphviz is not installed.
    """
    if graphviz is None:
        raise DynadiagError("graph: the package graphviz is missing; install it with `pip install 'dynadiag[graph]'`")
    drawn = graphviz.Digraph(
        name=graphviz.escape(clean_line(str(graph.graph.get("name", "")))),
        node_attr={"shape": "box", "style": "filled,rounded", "fontname": "monospace", "fontsize": "10"},
        edge_attr={"fontname": "monospace", "fontsize": "9"},
    )
    ids = {node: f"n{position}" for position, node in enumerate(graph)}
    for node, data in graph.nodes(data=True):
        color = _COLORS.get(data["kind"], "#ffffff")
        shape = "octagon" if data["kind"] == "break" else "box"
        drawn.node(ids[node], label=_escaped(data["label"]), fillcolor=color, shape=shape)
    for source, target, data in graph.edges(data=True):
        drawn.edge(ids[source], ids[target], label=_escaped(data.get("label", "")))
    return str(drawn.source)


def render_graph(graph: nx.DiGraph, format_: str) -> bytes:
    """The graph as a file: DOT text for "dot" and "gv", else drawn by Graphviz ("svg", "png", "pdf").

    Raises `DynadiagError` where Graphviz, or the package graphviz, is not installed, or Graphviz cannot draw it.
    """
    text = dot_text(graph)
    if format_ in _TEXT_FORMATS:
        return text.encode("utf-8")
    if format_ not in _DRAWN_FORMATS:
        raise DynadiagError(f"{format_}: not a format for a graph; write dot, gv, svg, png or pdf")
    try:
        return bytes(graphviz.pipe("dot", format_, text.encode("utf-8"), quiet=True))
    except graphviz.ExecutableNotFound as error:
        raise DynadiagError(
            f"{format_}: Graphviz's `dot` is not on the path; install Graphviz, or write DOT (-o NAME.dot)"
        ) from error
    except subprocess.CalledProcessError as error:
        raise DynadiagError(f"{format_}: Graphviz could not draw this ({error}); write DOT (-o NAME.dot)") from error


def _add_graphs(drawing: nx.DiGraph, explanation: Explanation) -> None:
    """The graphs of a compile, each below the one that it was made from."""
    chains: dict[str, _Chain] = {}
    for item in explanation.graphs:
        name = f"graph {item.index}"
        drawing.add_node(name, kind="graph", label=_label(item.stage, count(item.ops, "op")), stage=item.stage)
        chain = chains.setdefault(item.compile_id, _Chain(_frame(item.compile_id)))
        before = chain.add(name, item.stage)
        if before in drawing:
            drawing.add_edge(before, name, label="")


class _Chain:
    """The graphs of one compile in the order of the recording.

    AOTAutograd splits the joint graph into forward and backward. Inductor takes the forward through its stages, and
    the backward then or at the first call of it: its stages begin anew with the first that the forward had.
    """

    def __init__(self, frame: str) -> None:
        self._latest = self._joint = frame
        self._backward: str | None = None
        self._done: set[str] = set()

    def add(self, name: str, stage: str) -> str:
        """Take the next graph, and return the graph, or the frame, that it was made from."""
        if stage == "backward":
            self._backward = name
            return self._joint
        if stage == "forward":
            self._joint, self._done = self._latest, set()
        elif stage in self._done and self._backward is not None:
            self._latest, self._backward, self._done = self._backward, None, set()
        self._done.add(stage)
        before, self._latest = self._latest, name
        return before


def _add_breaks(drawing: nx.DiGraph, explanation: Explanation) -> None:
    """Each root cause once, with an edge from every graph it ended and one to what was compiled after it."""
    for root in explanation.roots:
        at = fit_path(source_location(root.span.file, root.span.line, None, explanation.run.cwd), _MAX_LABEL)
        label = _label(root.gb_id or "graph break", root.gb_type, at)
        drawing.add_node(f"break {root.index}", kind="break", label=label, gb_id=root.gb_id)
    ended = {item.compile_id: f"graph {item.index}" for item in explanation.graphs if item.stage == "dynamo"}
    for item in explanation.breaks:
        name = f"break {item.index if item.cause is None else item.cause}"
        source = ended.get(item.compile_id, _frame(item.compile_id))
        if source in drawing:
            drawing.add_edge(source, name, label="")
        onward = _resumed(item, explanation.compiles)
        if onward is not None and not item.fatal:
            drawing.add_edge(name, _frame(onward.compile_id), label="goes on")


def _resumed(item: Break, compiles: Sequence[Compile]) -> Compile | None:
    """The compile of the rest of a function after a break: the next one of this function in another frame."""
    ids = [compile_.compile_id for compile_ in compiles]
    if item.compile_id not in ids:
        return None
    start = ids.index(item.compile_id)
    origin = compiles[start]
    same = (
        other
        for other in compiles[start + 1 :]
        if (other.file, other.function) == (origin.file, origin.function)
        and other.compile_id.rpartition("/")[0] != origin.compile_id.rpartition("/")[0]
    )
    return next(same, None)


def _frame(compile_id: str) -> str:
    return f"frame {compile_id}"


def _node_label(node: Node) -> str:
    kind = " ".join(part for part in (node.dtype, node.shape) if part)
    line = f"line {node.span.line}" if node.span.line else ""
    return _label(node.name, "" if node.op in ("placeholder", "output") else node.target, kind, line)


def _label(*lines: str) -> str:
    return "\n".join(truncate_middle(clean_line(line), _MAX_LABEL) for line in lines if line)


def _escaped(label: str) -> Any:  # a str of graphviz's own, which keeps "<b>" from being read as HTML
    """A label for DOT: nothing in it is markup, its line ends are kept."""
    lines = (str(graphviz.escape(line)) for line in label.split("\n"))
    return graphviz.nohtml("\\n".join(lines))


def _capped(graph: nx.DiGraph) -> nx.DiGraph:
    """The graph, or its first nodes and one that says how many more there are."""
    hidden = graph.number_of_nodes() - MAX_NODES
    if hidden <= 0:
        return graph
    drawing = nx.DiGraph(graph.subgraph(list(graph)[:MAX_NODES]))
    drawing.add_node("...", kind="more", label=f"{count(hidden, 'more node')}")
    return drawing
