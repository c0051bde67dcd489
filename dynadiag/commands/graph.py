"""Draw what was compiled, as DOT, or as SVG, PNG or PDF if Graphviz's `dot` is installed.

Without options: the frames, the graphs that Dynamo made of them, and the breaks between them. With --nodes I: the
dataflow of graph I (its index in the list of graphs), if its nodes were recorded.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import networkx as nx

from dynadiag.commands import common, outputs
from dynadiag.errors import DynadiagError
from dynadiag.explanation.explanation import explain
from dynadiag.recording.opening import open_recording
from dynadiag.recording.reader import Recording
from dynadiag.render.dot import node_graph, overview_graph, render_graph


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    outputs.add_output(parser, "the file to write: .svg, .png or .pdf, or .dot or .gv for DOT (default: DOT on stdout)")
    parser.add_argument("--nodes", type=int, metavar="I", help="draw the nodes of graph I instead of the overview")
    parser.add_argument("recording", type=Path, metavar="REC", help="a recording")


def run(args: argparse.Namespace) -> int:
    with open_recording(args.recording) as recording:
        graph = overview_graph(explain(recording)) if args.nodes is None else _nodes(recording, args.nodes)
    if args.output is None:
        sys.stdout.write(render_graph(graph, "dot").decode())
        return 0
    drawn = render_graph(graph, args.output.suffix.removeprefix(".") or "dot")
    outputs.write_file(args.output, drawn, force=args.force)
    common.print_path(args.output)
    return 0


def _nodes(recording: Recording, index: int) -> nx.DiGraph:
    graphs = recording.graphs()
    if not 0 <= index < len(graphs):
        known = f"there are 0 to {len(graphs) - 1}" if graphs else "it has no graphs"
        raise DynadiagError(f"{recording.path}: no graph {index}; {known}")
    nodes = recording.nodes(index)
    if not nodes:
        kept = [str(graph.index) for graph in graphs if graph.is_of_dynamo][:20]
        raise DynadiagError(
            f"{recording.path}: the nodes of graph {index} ({graphs[index].stage}) were not recorded; "
            f"try these graphs of Dynamo: {', '.join(kept) or 'none'}"
        )
    return node_graph(nodes, f"{graphs[index].compile_id} {graphs[index].stage}")
