"""The recordings of one distributed job: its processes, what its ranks have in common, and where they diverge.

Pure functions of recordings; torch is never imported. `open_job` reads a job, `find_divergence` compares its ranks.
"""

from __future__ import annotations

from dynadiag.job.comparison import find_divergence, group_alike
from dynadiag.job.divergence import Divergence, divergence_finding
from dynadiag.job.processes import Job, Process, open_job
from dynadiag.job.ranks import rank_list

__all__ = [
    "Divergence",
    "Job",
    "Process",
    "divergence_finding",
    "find_divergence",
    "group_alike",
    "open_job",
    "rank_list",
]
