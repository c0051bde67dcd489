"""Kernels of a recording: their source, the graph nodes and user lines behind them, and their lower-level stages.

`generated_modules` reads the modules that Inductor generated, with their graphs. `kernel_calls` lists their kernels.
`module_links` makes the rows of the recording's link table. `make_stages` compiles one kernel. `compare_kernels`
compares the kernels of two recordings.
"""

from __future__ import annotations

from dynadiag.kernels.cost import RooflineCost, roofline_bound
from dynadiag.kernels.document_links import CompileLinker, DocumentLinks
from dynadiag.kernels.generated_module import GeneratedModule, KernelCall, source_lines_of
from dynadiag.kernels.graph_parser import SourceLine
from dynadiag.kernels.kernel_diff import KernelChange, change_diff, compare_kernels
from dynadiag.kernels.line_table import Stage
from dynadiag.kernels.link_digest import LinkDigest, fold_with_links, import_with_links, open_with_links
from dynadiag.kernels.links import module_links
from dynadiag.kernels.read_modules import generated_modules, kernel_calls, locate_graph
from dynadiag.kernels.stages import CompiledStages, make_stages

__all__ = [
    "CompileLinker",
    "CompiledStages",
    "DocumentLinks",
    "GeneratedModule",
    "KernelCall",
    "KernelChange",
    "LinkDigest",
    "RooflineCost",
    "SourceLine",
    "Stage",
    "change_diff",
    "compare_kernels",
    "fold_with_links",
    "generated_modules",
    "import_with_links",
    "kernel_calls",
    "locate_graph",
    "make_stages",
    "module_links",
    "open_with_links",
    "roofline_bound",
    "source_lines_of",
]
