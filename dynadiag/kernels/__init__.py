"""Kernels of a recording: their source, the graph nodes and user lines behind them, and their lower-level stages.

`generated_modules` reads the modules that Inductor generated, with their graphs. `kernel_calls` lists their kernels.
`make_stages` compiles one kernel. `compare_kernels` compares the kernels of two recordings. `CompileLinker` links the
lines of graphs and generated code to the user's lines.
"""

from __future__ import annotations

from dynadiag.kernels.cost import RooflineCost, roofline_bound
from dynadiag.kernels.document_links import CompileLinker, DocumentLinks
from dynadiag.kernels.generated_module import GeneratedModule, KernelCall, source_lines_of
from dynadiag.kernels.graph_parser import SourceLine
from dynadiag.kernels.kernel_diff import KernelChange, change_diff, compare_kernels
from dynadiag.kernels.line_table import Stage
from dynadiag.kernels.read_modules import generated_modules, kernel_calls
from dynadiag.kernels.stages import CompiledStages, make_stages

__all__ = [
    "CompileLinker",
    "CompiledStages",
    "DocumentLinks",
    "GeneratedModule",
    "KernelCall",
    "KernelChange",
    "RooflineCost",
    "SourceLine",
    "Stage",
    "change_diff",
    "compare_kernels",
    "generated_modules",
    "kernel_calls",
    "make_stages",
    "roofline_bound",
    "source_lines_of",
]
