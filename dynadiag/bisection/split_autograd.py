"""Combines two compiles of one Dynamo graph: the forward of one with the backward of the other.

At the rungs before Inductor a graph is compiled as a whole. To see which direction is at fault, one is taken from the
rung below while the other stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Compiled = Callable[..., Any]


def split_autograd(values: Compiled, gradients: Compiled) -> Compiled:
    """A function with the results of ``values`` and the gradients of ``gradients``, computed with the same random
    numbers.
    """

    def call(*inputs: Any) -> Any:
        if torch.is_grad_enabled() and any(_requires_grad(value) for value in inputs):
            return _SplitAutograd.apply(values, gradients, *inputs)
        return values(*inputs)

    return call


class _SplitAutograd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Compiled, gradients: Compiled, *inputs: Any) -> Any:
        state = torch.get_rng_state()
        ctx.inputs = [_copy(value) for value in inputs]  # copies, since the graph may write to its inputs
        with torch.enable_grad():
            ctx.outputs = gradients(*ctx.inputs)
        torch.set_rng_state(state)
        results = tuple(values(*inputs))
        ctx.mark_non_differentiable(
            *(
                result
                for result, output in zip(results, ctx.outputs, strict=True)
                if isinstance(result, torch.Tensor) and not _requires_grad(output)
            )
        )
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    def backward(ctx: Any, *given: torch.Tensor | None) -> Any:
        pairs = [(o, g) for o, g in zip(ctx.outputs, given, strict=True) if _requires_grad(o) and g is not None]
        leaves = [value for value in ctx.inputs if _requires_grad(value)]
        roots, cotangents = [o for o, _ in pairs], [g for _, g in pairs]
        found = iter(torch.autograd.grad(roots, leaves, cotangents, allow_unused=True, retain_graph=True))
        return None, None, *(next(found) if _requires_grad(value) else None for value in ctx.inputs)


def _requires_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _copy(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)
