"""Checks fake kernels of custom operators: whether the operator returns what its fake kernel promises.

The compiler trusts a fake kernel: it generates code for the shape and dtype that it promises. Where that is wrong,
operators that read the result fail, though no other decision of the compiler is at fault. Switched off, the decision to
trust it is reversed: the operator itself runs on zeros, and its result replaces the promise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from dynadiag.bisect.operators import is_custom
from dynadiag.torch_private import bisect as torch_private
from dynadiag.torch_private.fakes import hints, returned, traced_line, wrap_fake_dispatch
from dynadiag.trial.runtime import TRIAL

__all__ = ["OPERATOR", "install"]

OPERATOR = "operator"  # the kind of these decisions
_told: set[str] = set()  # what this process has reported: operators, and wrong fake kernels


def install() -> None:
    """Install the hook in torch, once per process."""
    wrap_fake_dispatch(_promise)


def _promise(inner: Callable[..., Any], mode: Any, operator: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """The fake result of an operator: from its fake kernel, or from the operator itself where that is switched off."""
    if not TRIAL.asks(OPERATOR) or not _custom(operator):
        return inner(mode, operator, types, args, kwargs)
    name = str(operator)
    if _once(name):
        TRIAL.send("operator", name=name)
    promised = inner(mode, operator, types, args, kwargs)
    switch = TRIAL.plan.switch(OPERATOR)
    if switch is None or switch.on(name):
        return promised
    return _set_right(mode, operator, args, kwargs, promised)


@functools.lru_cache(maxsize=4096)
def _custom(operator: Any) -> bool:
    return is_custom(str(operator))


def _once(text: str) -> bool:
    new = text not in _told
    _told.add(text)
    return new


def _set_right(mode: Any, operator: Any, args: Any, kwargs: Any, promised: Any) -> Any:
    try:
        real = pytree.tree_leaves(returned(operator, args, kwargs))
    except Exception:  # noqa: BLE001 - the user's operator may raise anything on zeros
        return promised
    fake, form = pytree.tree_flatten(promised)
    texts = [] if len(real) != len(fake) else [t for t in map(_difference, real, fake) if t]
    if not texts:
        return promised
    _tell(str(operator), texts[0])
    return pytree.tree_unflatten([_in_form(mode, r, p) for r, p in zip(real, fake, strict=True)], form)


def _tell(name: str, text: str) -> None:
    if not _once(f"{name} lies"):
        return
    line = traced_line()
    lines = [line] if line else torch_private.traced_lines()
    here = {"compile_id": torch_private.compile_id(), "graph": torch_private.graph_kind()}
    TRIAL.send("point", group=OPERATOR, key=name, name=name, target=name, lines=lines, **here)
    TRIAL.send("note", text=f"{name} returns {text}: the fake kernel is wrong, and the compiler trusts it")


def _difference(real: Any, promised: Any) -> str | None:
    if not isinstance(real, torch.Tensor) or not isinstance(promised, torch.Tensor):
        return None
    if real.dtype != promised.dtype:
        return f"{real.dtype} where its fake kernel promises {promised.dtype}"
    sizes, strides = hints(promised.shape), hints(promised.stride())
    if None in sizes:
        return None  # a data-dependent size: any may be right
    if list(real.shape) != sizes:
        return f"the shape {list(real.shape)} where its fake kernel promises {sizes}"
    if real.layout is torch.strided and real.numel() > 1 and list(real.stride()) != strides:
        return f"the strides {list(real.stride())} where its fake kernel promises {strides}"
    return None


def _in_form(mode: Any, real: Any, promised: Any) -> Any:
    """A fake tensor with the metadata of the real one. Sizes stay symbolic where the promise has the right number."""
    if _difference(real, promised) is None:
        return promised
    with mode:
        sizes = _sizes(real, promised)
        return torch.empty_strided(sizes, _strides(real, sizes), dtype=real.dtype, device=promised.device)


def _sizes(real: torch.Tensor, promised: torch.Tensor) -> list[Any]:
    if real.dim() != promised.dim():
        return list(real.shape)
    known = zip(promised.shape, hints(promised.shape), real.shape, strict=True)
    return [size if hint in (None, number) else number for size, hint, number in known]


def _strides(real: torch.Tensor, sizes: Sequence[Any]) -> list[Any]:
    """Dense strides, in the order of the real tensor's dimensions."""
    strides: list[Any] = [1] * len(sizes)
    step: Any = 1
    for dimension in sorted(range(len(sizes)), key=lambda d: (real.stride(d), -d)):
        strides[dimension] = step
        step = step * sizes[dimension]
    return strides
