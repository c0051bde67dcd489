"""From a recording to its kernels: what they are, what they were made of, and what becomes of them.

`units` reads the generated modules of a recording with their graphs; `kernel_calls` lists their kernels; `Thread` links
the lines of a unit's documents; `make_stages` has a kernel compiled; `compare_kernels` compares two recordings.
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
