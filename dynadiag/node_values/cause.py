"""What made a number that is not finite: the operands at its position, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dynadiag.trial.reference_run import tensors_in

_ROW_OPERATORS = ("softmax", "_softmax", "log_softmax", "_log_softmax", "logsumexp")
_PRODUCTS = ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "__matmul__", "einsum")


def cause_of(name: str, args: Any, kwargs: Any, value: torch.Tensor, wide: torch.Tensor | None) -> str | None:
    """Return what made the first NaN of a value, or else its first infinity: ``log of -0.25 at [0, 3]``.

    None if an input has a number of the same kind already: then it came from there. ``name`` is the operator's,
    ``wide`` the value in float64.
    """
    is_bad = torch.isnan if bool(value.isnan().any()) else torch.isinf
    inputs = [each for each in tensors_in((args, kwargs)) if each.layout is torch.strided and each.is_floating_point()]
    if any(bool(is_bad(each).any()) for each in inputs):
        return None
    at = tuple(is_bad(value).nonzero()[0].tolist()) if value.dim() else ()
    place = f" at {list(at)}" if at else ""
    if wide is not None and wide.shape == value.shape and bool(wide[at].isfinite()):
        largest = torch.finfo(value.dtype).max
        if abs(float(wide[at])) > largest:
            return f"{name} overflows {_text(value.dtype)}: it is {float(wide[at]):.4g} in float64{place}"
    operands = [_operand(each, value, at) for each in (*args, *kwargs.values())]
    if name not in _ROW_OPERATORS + _PRODUCTS and operands and all(each is not None for each in operands):
        return f"{name} of {_list([each for each in operands if each])}{place}"
    return f"{name} of {_ranges(name, inputs)}{place}"


def _text(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _operand(operand: Any, value: torch.Tensor, at: tuple[int, ...]) -> str | None:
    """An operand at a position of the result. None if it has no such position; empty for what is no number."""
    if isinstance(operand, torch.Tensor):
        try:
            return f"{operand.expand(value.shape)[at].item():.6g}"
        except (RuntimeError, TypeError, ValueError):
            return None
    return f"{operand:.6g}" if isinstance(operand, (int, float)) and not isinstance(operand, bool) else ""


def _list(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _ranges(name: str, inputs: Sequence[torch.Tensor]) -> str:
    """What is known of operands that have no elements of their own for an element of the result."""
    parts = []
    for each in inputs:
        if not each.numel():
            parts.append("no elements")
            continue
        infinite = each.isinf()
        if name in _ROW_OPERATORS and bool(each.dim() and (infinite & (each < 0)).all(-1).any()):
            return "a row that is -inf everywhere"
        finite = each[~infinite & ~each.isnan()].double()
        zero = ", with zeros" if bool((each == 0).any()) else ""
        low, high = (float(finite.min()), float(finite.max())) if finite.numel() else (0.0, 0.0)
        parts.append(f"{low:.4g}..{high:.4g}{zero}{', with infinities' if bool(infinite.any()) else ''}")
    return " and ".join(parts) or "inputs without floating numbers"
