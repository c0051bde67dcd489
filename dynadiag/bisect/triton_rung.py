"""The triton rung: whether this machine can run it, and whether a trial really used it."""

from __future__ import annotations

import importlib.util

from dynadiag.trial.outcome import Outcome

__all__ = ["TRITON", "missing_reason", "not_run_reason"]

TRITON = "triton"


def missing_reason() -> str | None:
    """Why Triton kernels cannot be generated and interpreted here, or ``None``."""
    if importlib.util.find_spec("triton") is None:
        return "the triton rung was not run: Triton is not installed (pip install triton)"
    return None


def not_run_reason(outcome: Outcome) -> str | None:
    """Why a trial that passed says nothing about Triton's code generator, or ``None``: no kernel ran."""
    facts = outcome.facts or {}
    if not outcome.passed or facts.get("launches") or facts.get("cuda"):
        return None
    others = sorted({name for name in facts.get("backends", ()) if name != "inductor"})
    if not facts.get("backends"):
        reason = "nothing was compiled"
    elif others:
        reason = f"its graphs go to {', '.join(others)}, and no Triton kernel was run"
    else:
        reason = "its graphs call libraries only, and no kernel was generated"
    return f"the triton rung was not run: {reason}"
