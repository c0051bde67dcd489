"""Advice for recompiles: what would have kept the compiled code usable."""

from __future__ import annotations

from dynadiag.recording.records import Recompile

__all__ = ["advise"]

_NO_REASON = "no reason was recorded"


def advise(recompile: Recompile) -> tuple[str, ...]:
    """What to do about one recompile, most useful first."""
    return () if recompile.reasons else (_NO_REASON,)
