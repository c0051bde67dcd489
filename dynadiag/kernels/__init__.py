"""Kernels of a recording: their source, the graph nodes and user lines behind them, and their lower-level stages.

`generated_modules` reads the modules that Inductor generated, with their graphs. `kernel_calls` lists their kernels.
`module_links` makes the rows of the recording's link table. `make_stages` compiles one kernel. `compare_kernels`
compares the kernels of two recordings.
"""

from __future__ import annotations

from dynadiag.kernels.compare import Change, compare_kernels, source_diff
from dynadiag.kernels.cost import Cost, bound
from dynadiag.kernels.linked import LinkingDigest, fold_in_place, import_log, open_any
from dynadiag.kernels.links import Related, Thread, links_of
from dynadiag.kernels.printed import Place
from dynadiag.kernels.source import kernel_source
from dynadiag.kernels.stages import Stage, Stages, make_stages
from dynadiag.kernels.survey import kernel_calls, units
from dynadiag.kernels.unit import KernelCall, Unit, places_of

__all__ = [
    "Change",
    "Cost",
    "KernelCall",
    "LinkingDigest",
    "Place",
    "Related",
    "Stage",
    "Stages",
    "Thread",
    "Unit",
    "bound",
    "compare_kernels",
    "fold_in_place",
    "import_log",
    "kernel_calls",
    "kernel_source",
    "links_of",
    "make_stages",
    "open_any",
    "places_of",
    "source_diff",
    "units",
]
