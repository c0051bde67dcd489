"""A recording explained: its breaks and their causes, its guards and recompiles, where the time went, what to do."""

from __future__ import annotations

from dynadiag.explain.causes import group
from dynadiag.explain.explanation import Explanation, explain
from dynadiag.explain.registry import Entry, Registry
from dynadiag.explain.source import Readable

__all__ = ["Entry", "Explanation", "Readable", "Registry", "explain", "group"]
