"""What torch believes that an operator returns: its fake kernel. Read in torch 2.11.0, 2.13.0, 2.15.0."""

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
    """Have ``hook(inner, mode, operator, types, args, kwargs)`` give the fake result of every operator.

    All of the compiler asks there: Dynamo, AOTAutograd, Inductor. Fake results that torch kept are asked for behind it.
    """
    inner = FakeTensorMode.dispatch

    @functools.wraps(inner)
    def dispatch(mode: Any, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return hook(inner, mode, operator, types, args, kwargs or {})

    FakeTensorMode.dispatch = dispatch


def size_hints(sizes: Sequence[int | torch.SymInt]) -> list[int | None]:
    """The number behind each symbolic size, without a guard on it; None where it depends on data."""
    return [size if isinstance(size, int) else size.node.hint for size in sizes]


def run_on_zeros(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What ``operator`` itself returns for tensors of zeros in place of these fake ones.

    What it raises, it raises; and `ValueError` where a size of an input depends on data.
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
    """The user's line that Dynamo is tracing, where it is."""
    if TracingContext.try_get() is None:
        return None
    outside = [frame for frame in TracingContext.extract_stack() if not frame.filename.startswith(_TORCH)]
    return (outside[-1].filename, outside[-1].lineno or 0) if outside else None
