"""What the device can do at best, measured: bytes moved and operations a second.

A copy of a large tensor for the bytes (read and written), large matrix products for what libraries can compute, and on
a GPU a kernel of multiplications and additions in registers for what generated kernels can.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import benchmark

__all__ = ["measure"]

_COPIED = {"cuda": 1 << 30, "cpu": 1 << 28}  # bytes: far more than a cache holds
_SIDE = {"cuda": 8192, "cpu": 1024}  # of the square matrices
_DTYPES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}  # as graphs print them, as torch names them
_SLOW = ("f16",)  # on a CPU, where no library has a product of them that is any good
_TIMES = 10
_CHAINS, _STEPS, _BLOCK, _PROGRAMS = 4, 4096, 1024, 132 * 16


def measure(device: str) -> dict[str, Any]:
    """``{"moved": bytes a second, "products": {dtype: operations a second}, "vector": operations a second}``.

    "vector" is None on a CPU.
    """
    return {
        "moved": _moved(device),
        "products": {name: _product(getattr(torch, dtype), device) for name, dtype in _dtypes(device)},
        "vector": _vector() if device == "cuda" else None,
    }


def _dtypes(device: str) -> list[tuple[str, str]]:
    return [(name, dtype) for name, dtype in _DTYPES.items() if device == "cuda" or name not in _SLOW]


def _moved(device: str) -> float:
    source = torch.empty(_COPIED[device], dtype=torch.int8, device=device)
    target = torch.empty_like(source)
    return 2 * _COPIED[device] / _best(lambda: target.copy_(source), device)


def _product(dtype: Any, device: str) -> float:
    side = _SIDE[device]
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    return 2 * side**3 / _best(lambda: a @ b, device)


def _vector() -> float:
    """Multiply-adds in float32 registers, two operations each."""
    from dynadiag.trial.measure.spin import spin

    out = torch.empty(_PROGRAMS * _BLOCK, device="cuda")
    seconds = _best(lambda: spin[(_PROGRAMS,)](out, _STEPS, _BLOCK), "cuda")
    return 2 * _CHAINS * _STEPS * _BLOCK * _PROGRAMS / seconds


def _best(run: Callable[[], Any], device: str) -> float:
    """Seconds of one run: the best of several blocks, by CUDA events on a GPU."""
    run()
    if device != "cuda":
        timer = benchmark.Timer("run()", globals={"run": run}, num_threads=torch.get_num_threads())
        return float(min(timer.timeit(1).mean for _ in range(_TIMES)))
    seconds = []
    for _ in range(_TIMES):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(_TIMES):
            run()
        end.record()
        torch.cuda.synchronize()
        seconds.append(start.elapsed_time(end) * 1e-3 / _TIMES)
    return min(seconds)
