"""Draw what was compiled, as DOT, or as SVG or PNG where Graphviz's `dot` is installed.

By itself: the frames, the graphs that Dynamo made of them, and the breaks between. With --nodes I: the dataflow of
graph I (its place in the list of graphs), where it was kept as data.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import networkx as nx

from dynadiag.commands import common
from dynadiag.errors import DynadiagError
from dynadiag.explain import explain
from dynadiag.kernels.linked import open_any
from dynadiag.recording.reader import Recording
from dynadiag.render.dot import node_graph, overview_graph, rendered


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    common.add_output(parser, "the file to write; .svg and .png are drawn, anything else is DOT (by itself: stdout)")
    parser.add_argument("--nodes", type=int, metavar="I", help="draw the nodes of graph I instead of the overview")
    parser.add_argument("recording", type=Path, metavar="REC", help="a recording")


def run(args: argparse.Namespace) -> int:
    with open_any(args.recording) as recording:
        graph = overview_graph(explain(recording)) if args.nodes is None else _nodes(recording, args.nodes)
    if args.output is None:
        sys.stdout.write(rendered(graph, "dot").decode())
        return 0
    drawn = rendered(graph, args.output.suffix.removeprefix(".") or "dot")
    common.write_file(args.output, drawn, force=args.force)
    common.say_where(args.output)
    return 0


def _nodes(recording: Recording, index: int) -> nx.DiGraph:
    graphs = recording.graphs()
    if not 0 <= index < len(graphs):
        raise DynadiagError(f"{recording.path}: there is no graph {index}, only 0 to {len(graphs) - 1}")
    nodes = recording.nodes(index)
    if not nodes:
        kept = [str(graph.index) for graph in graphs if graph.stage == "dynamo"][:20]
        raise DynadiagError(
            f"{recording.path}: graph {index} ({graphs[index].stage}) was not kept as data; "
            f"these of Dynamo's may be: {', '.join(kept) or 'none'}"
        )
    return node_graph(nodes, f"{graphs[index].compile_id} {graphs[index].stage}")
