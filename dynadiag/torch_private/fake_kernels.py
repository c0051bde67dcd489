"""What torch expects an operator to return: its fake kernel. Read in torch 2.11.0, 2.13.0, 2.15.0."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._mode_utils import no_dispatch

__all__ = ["run_on_zeros", "size_hints", "traced_user_line", "wrap_fake_dispatch"]

_TORCH = torch.__file__.removesuffix("__init__.py")


def wrap_fake_dispatch(hook: Callable[..., Any]) -> None:
    """Let ``hook(inner, mode, operator, types, args, kwargs)`` compute the fake result of every operator.

    Dynamo, AOTAutograd and Inductor all call it. torch looks up its cached fake results inside `inner`.
    """
    inner = FakeTensorMode.dispatch

    @functools.wraps(inner)
    def dispatch(mode: Any, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return hook(inner, mode, operator, types, args, kwargs or {})

    FakeTensorMode.dispatch = dispatch


def size_hints(sizes: Sequence[int | torch.SymInt]) -> list[int | None]:
    """Return the value of each symbolic size, without adding a guard. None if it depends on data."""
    return [size if isinstance(size, int) else size.node.hint for size in sizes]


def run_on_zeros(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what ``operator`` itself returns for tensors of zeros in place of these fake ones.

    Raises what the operator raises, and `ValueError` if the size of an input depends on data.
    """
    with no_dispatch():
        args, kwargs = pytree.tree_map(_zeros_like_fake, (args, kwargs))
        return operator(*args, **kwargs)


def _zeros_like_fake(leaf: Any) -> Any:
    if isinstance(leaf, torch.SymInt):
        return _known_sizes([leaf])[0]
    if not isinstance(leaf, torch.Tensor):
        return leaf
    sizes, strides = _known_sizes(leaf.shape), _known_sizes(leaf.stride())
    return torch.empty_strided(sizes, strides, dtype=leaf.dtype, device=leaf.device).zero_()


def _known_sizes(sizes: Sequence[int | torch.SymInt]) -> list[int]:
    found = size_hints(sizes)
    if None in found:
        raise ValueError("a size that depends on data")
    return [size for size in found if size is not None]


def traced_user_line() -> tuple[str, int] | None:
    """Return the user's line that Dynamo is tracing, or None."""
    if TracingContext.try_get() is None:
        return None
    outside = [frame for frame in TracingContext.extract_stack() if not frame.filename.startswith(_TORCH)]
    return (outside[-1].filename, outside[-1].lineno or 0) if outside else None
