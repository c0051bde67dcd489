"""Why a start of a program compiles although it was compiled before: what each cache was asked in one run or two.

`read_caches` makes a `CacheReport` of recordings. Of two runs it names the components of a key that changed, and what
in the program changed them. `start_phases` says where the seconds of a start go.
"""

from __future__ import annotations

from dynadiag.caches.cache_report import CacheEntry, CacheReport, StartedRun, read_caches
from dynadiag.caches.key_changes import Cause, ChangedComponent, changed_components
from dynadiag.caches.start_phases import StartPhase, StartPhases, TimedSection, start_phases, timed_sections

__all__ = [
    "CacheEntry",
    "CacheReport",
    "Cause",
    "ChangedComponent",
    "StartPhase",
    "StartPhases",
    "StartedRun",
    "TimedSection",
    "changed_components",
    "read_caches",
    "start_phases",
    "timed_sections",
]
