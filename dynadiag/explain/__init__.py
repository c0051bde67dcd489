"""A recording explained: its breaks and their causes, its guards and recompiles, where the time went, what to do.

The names below load on first use: the browser needs a part of this before its first screen.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynadiag.explain.causes import group_breaks
    from dynadiag.explain.explanation import Explanation, explain
    from dynadiag.explain.registry import BreakEntry, Registry
    from dynadiag.explain.source import ExplainedRecording

__all__ = ["BreakEntry", "ExplainedRecording", "Explanation", "Registry", "explain", "group_breaks"]

_WHERE = {
    "BreakEntry": "dynadiag.explain.registry",
    "Explanation": "dynadiag.explain.explanation",
    "ExplainedRecording": "dynadiag.explain.source",
    "Registry": "dynadiag.explain.registry",
    "explain": "dynadiag.explain.explanation",
    "group_breaks": "dynadiag.explain.causes",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'dynadiag.explain' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
