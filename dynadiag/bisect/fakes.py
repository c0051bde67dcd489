"""Custom operators whose fake kernel promises something else than the operator returns.

The compiler believes a fake kernel: it writes its kernels for the shape and dtype that was promised. What goes wrong
then goes wrong in the operators that read the result, and no decision of the compiler is at fault. So where a program
has operators of its own, one more trial runs it uncompiled and holds what they return against what was promised.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from dynadiag.bisect.operators import FAKES, is_custom
from dynadiag.torch_private.fakes import faked
from dynadiag.trial.runtime import TRIAL

__all__ = ["watch_fakes"]


def watch_fakes() -> None:
    """From now on in this process, where its plan asks for it."""
    if FAKES in TRIAL.plan.record:
        _Compared().__enter__()


class _Compared(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self._known: set[Any] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if is_custom(str(func)) and func not in self._known:
            self._known.add(func)
            text = _difference(func, args, kwargs or {}, result)
            if text:
                TRIAL.send("note", text=text)
        return result


def _difference(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> str | None:
    try:
        promised = faked(func, args, kwargs)
    except Exception as error:  # noqa: BLE001 - a stranger's fake kernel raises what it likes
        return f"the fake kernel of {func} raises {type(error).__name__}: {str(error)[:200]}"
    real, fake = pytree.tree_leaves(result), pytree.tree_leaves(promised)
    if len(real) != len(fake):
        return f"{func} returns {len(real)} values; its fake kernel promises {len(fake)}"
    for returned, promise in zip(real, fake, strict=True):
        text = _form(returned, promise)
        if text:
            return f"{func} returns {text}: the fake kernel is wrong, and the compiler believes it"
    return None


def _form(returned: Any, promised: Any) -> str | None:
    if not isinstance(returned, torch.Tensor) or not isinstance(promised, torch.Tensor):
        return None
    if returned.dtype != promised.dtype:
        return f"{returned.dtype} where its fake kernel promises {promised.dtype}"
    if not all(isinstance(size, int) for size in promised.shape):
        return None  # a size that depends on data: any may be right
    if returned.shape != promised.shape:
        return f"the shape {list(returned.shape)} where its fake kernel promises {list(promised.shape)}"
    if returned.layout is torch.strided and returned.numel() > 1 and returned.stride() != promised.stride():
        return f"the strides {list(returned.stride())} where its fake kernel promises {list(promised.stride())}"
    return None
