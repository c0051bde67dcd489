"""A recording explained: its breaks and their causes, its guards and recompiles, where the time went, what to do.

The names below load on first use: the browser needs a part of this before its first screen.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynadiag.explain.causes import group
    from dynadiag.explain.explanation import Explanation, explain
    from dynadiag.explain.registry import Entry, Registry
    from dynadiag.explain.source import Readable

__all__ = ["Entry", "Explanation", "Readable", "Registry", "explain", "group"]

_WHERE = {
    "Entry": "dynadiag.explain.registry",
    "Explanation": "dynadiag.explain.explanation",
    "Readable": "dynadiag.explain.source",
    "Registry": "dynadiag.explain.registry",
    "explain": "dynadiag.explain.explanation",
    "group": "dynadiag.explain.causes",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'dynadiag.explain' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
