"""The one error that the minifier raises by itself."""

from __future__ import annotations

__all__ = ["ReductionError"]


class ReductionError(Exception):
    """A graph, inputs or an oracle that cannot be reduced. The message is one line: what is wrong, and the cure."""
