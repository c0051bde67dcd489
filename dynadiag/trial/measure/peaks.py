"""Measures the peak rates of the device: bytes moved and floating-point operations per second.

A copy of a large tensor for bytes (read and written), large matrix products for what libraries reach, and on a GPU a
kernel of multiply-adds in registers for what generated kernels can reach.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import benchmark

__all__ = ["measure"]

_COPIED = {"cuda": 1 << 30, "cpu": 1 << 28}  # bytes, far more than any cache
_SIDE = {"cuda": 8192, "cpu": 1024}  # rows and columns
_DTYPES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}  # the name in graphs, and torch's
_SLOW = ("f16",)  # no library has a fast float16 matrix product for CPUs
_TIMES = 10
_CHAINS, _STEPS, _BLOCK, _PROGRAMS = 4, 4096, 1024, 132 * 16


def measure(device: str) -> dict[str, Any]:
    """``{"moved": bytes/s, "products": {dtype: operations/s}, "vector": operations/s}``; "vector" is None on a CPU."""
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
    """float32 multiply-adds in registers. Each counts as two operations."""
    from dynadiag.trial.measure.spin import spin

    out = torch.empty(_PROGRAMS * _BLOCK, device="cuda")
    seconds = _best(lambda: spin[(_PROGRAMS,)](out, _STEPS, _BLOCK), "cuda")
    return 2 * _CHAINS * _STEPS * _BLOCK * _PROGRAMS / seconds


def _best(run: Callable[[], Any], device: str) -> float:
    """Seconds of one run: the best of several blocks, on a GPU by CUDA events."""
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
