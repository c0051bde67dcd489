"""The error that the minifier raises."""

from __future__ import annotations

__all__ = ["ReductionError"]


class ReductionError(Exception):
    """A graph, its inputs or the oracle do not allow a reduction. The message is one line: the problem and the fix."""
