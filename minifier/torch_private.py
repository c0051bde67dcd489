"""The private names of torch that the minifier uses, each with the versions it was seen in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from torch._functorch import predispatch

__all__ = ["PREDISPATCH", "base_of", "inside_transform", "is_transformed", "opens_transform", "undisturbed"]

# 2.11 to 2.15: what Dynamo records of vmap and grad inside a graph.
PREDISPATCH: Any = predispatch
_TRANSFORM = ("_vmap_", "_add_batch_dim", "_remove_batch_dim", "lazy_load_decompositions", "_grad_", "_wrap_for_grad")


def base_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """What a tensor is a view of, to autograd: AOTAutograd treats inputs of one storage by it. 2.11 to 2.15."""
    return None if tensor.is_inference() else tensor._base


def is_transformed(value: Any) -> bool:
    """Whether a tensor exists only inside a vmap or grad that has been entered. 2.11 to 2.15."""
    return isinstance(value, torch.Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(value)


def inside_transform() -> bool:
    """Whether a vmap or grad has been entered. 2.11 to 2.15."""
    return torch._C._functorch.get_dynamic_layer_stack_depth() > 0


def opens_transform(node: fx.Node) -> bool:
    """Whether a node enters or leaves a vmap or grad."""
    home = getattr(node.target, "__module__", None)
    name = getattr(node.target, "__name__", "")
    functorch = home in ("torch._functorch.predispatch", "torch._C._functorch", "torch._functorch.vmap")
    return functorch and any(part in name for part in _TRANSFORM)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Run code of unknown manners: the state of randomness, gradients and transforms is as before. 2.11 to 2.15."""
    enabled, dual = torch.is_grad_enabled(), _dual_entered()
    depth = torch._C._functorch.get_dynamic_layer_stack_depth()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)
        if not dual and _dual_entered():
            torch._C._exit_dual_level(level=0)  # the only one: levels do not nest
        torch.set_grad_enabled(enabled)


def _dual_entered() -> bool:
    """Whether a level of forward-mode AD has been entered: entering another tells. 2.11 to 2.15."""
    try:
        level = torch._C._enter_dual_level()
    except RuntimeError:
        return True
    torch._C._exit_dual_level(level=level)
    return False
