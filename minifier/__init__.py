"""Reduces a failing FX graph to the operations that cause the failure.

    from minifier import reduce_graph
    reduction = reduce_graph(gm, inputs, fails)      # fails(gm, inputs) -> bool

`minifier.search` is the search, independent of torch. The other modules split a graph into parts, simplify graph and
inputs, and write the result as a program (`minifier.emit`). The names below load torch on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minifier.errors import ReductionError
    from minifier.reduction import Reduction, reduce_graph
    from minifier.search import Budget, ReductionProgress

__all__ = ["Budget", "Reduction", "ReductionError", "ReductionProgress", "reduce_graph"]

_HOMES = {
    "Budget": "minifier.search",
    "ReductionProgress": "minifier.search",
    "Reduction": "minifier.reduction",
    "ReductionError": "minifier.errors",
    "reduce_graph": "minifier.reduction",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
