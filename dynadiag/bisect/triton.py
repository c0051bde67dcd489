"""Triton's rung on a machine without a GPU: whether it can be had here, and whether a trial really was at it."""

from __future__ import annotations

import importlib.util

from dynadiag.trial.outcome import Outcome

__all__ = ["TRITON", "idle", "unavailable"]

TRITON = "triton"


def unavailable() -> str | None:
    """Why no kernel of Triton's can be generated and interpreted here, where that is so."""
    if importlib.util.find_spec("triton") is None:
        return "the triton rung was not run: Triton is not installed (pip install triton)"
    return None


def idle(outcome: Outcome) -> str | None:
    """Why a trial that passed says nothing of Triton's code generator, where it says nothing: no kernel was run."""
    facts = outcome.facts or {}
    if not outcome.passed or facts.get("launches") or facts.get("cuda"):
        return None
    others = sorted({name for name in facts.get("backends", ()) if name != "inductor"})
    if not facts.get("backends"):
        reason = "nothing was compiled"
    elif others:
        reason = f"its graphs go to {', '.join(others)}, and no kernel of Triton's was run"
    else:
        reason = "its graphs call libraries only, and no kernel was generated"
    return f"the triton rung was not run: {reason}"
