"""The errors that the minifier raises."""

from __future__ import annotations


class ReductionError(Exception):
    """A graph, its inputs or the oracle do not allow a reduction. The message is one line: the problem and the fix."""


class EmitError(ReductionError):
    """Something in a graph or its inputs cannot be written as source. The message names it."""
