"""What the emitter refuses."""

from __future__ import annotations

from minifier.errors import ReductionError

__all__ = ["EmitError"]


class EmitError(ReductionError):
    """Something in a graph or its inputs that has no form in source. The message names it."""
