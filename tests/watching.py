"""Functions that tell a test under which state of torch they ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["autocast_watcher"]


def autocast_watcher() -> tuple[Callable[..., Any], list[tuple[bool, bool]]]:
    """A copy of its argument, and whether autocast was on in each forward pass and in the backward pass to it."""
    seen: list[tuple[bool, bool]] = []

    class Watched(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, t: torch.Tensor) -> torch.Tensor:
            ctx.forward_on = torch.is_autocast_enabled("cpu")
            return t.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            seen.append((ctx.forward_on, torch.is_autocast_enabled("cpu")))
            return grad

    return Watched.apply, seen
