"""The error of the emitter."""

from __future__ import annotations

from minifier.errors import ReductionError

__all__ = ["EmitError"]


class EmitError(ReductionError):
    """Something in a graph or its inputs cannot be written as source. The message names it."""
