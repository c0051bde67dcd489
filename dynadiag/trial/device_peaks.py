"""Measures the peak rates of the device: bytes moved and floating-point operations per second.

Bytes are those read and written by a copy of a large tensor. Operations are those of large matrix products, the peak
for libraries, and on a GPU those of a kernel of multiply-adds in registers, the peak for generated kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import benchmark

from dynadiag.kernels.timing import DevicePeaks

_COPY_BYTES = {"cuda": 1 << 30, "cpu": 1 << 28}  # bytes, far more than any cache
_MATRIX_SIZE = {"cuda": 8192, "cpu": 1024}  # rows and columns
_DTYPES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}  # the name in graphs, and torch's
_CPU_SKIPPED_DTYPES = ("f16",)  # no library has a fast float16 matrix product for CPUs
_REPEATS = 10
_CHAINS, _STEPS, _BLOCK, _PROGRAMS = 4, 4096, 1024, 132 * 16


def measure_peaks(device: str) -> DevicePeaks:
    """The peaks of "cuda" or "cpu". A CPU has no separate peak for operations other than matrix products."""
    products = {name: _matmul_rate(getattr(torch, dtype), device) for name, dtype in _dtypes(device)}
    return DevicePeaks(_bandwidth(device), products, _vector_rate() if device == "cuda" else None)


def _dtypes(device: str) -> list[tuple[str, str]]:
    return [(name, dtype) for name, dtype in _DTYPES.items() if device == "cuda" or name not in _CPU_SKIPPED_DTYPES]


def _bandwidth(device: str) -> float:
    source = torch.empty(_COPY_BYTES[device], dtype=torch.int8, device=device)
    target = torch.empty_like(source)
    return 2 * _COPY_BYTES[device] / _best_seconds(lambda: target.copy_(source), device)


def _matmul_rate(dtype: Any, device: str) -> float:
    side = _MATRIX_SIZE[device]
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    return 2 * side**3 / _best_seconds(lambda: a @ b, device)


def _vector_rate() -> float:
    """float32 multiply-adds in registers. Each counts as two operations."""
    from dynadiag.trial.fma_kernel import fma_chains

    out = torch.empty(_PROGRAMS * _BLOCK, device="cuda")
    seconds = _best_seconds(lambda: fma_chains[(_PROGRAMS,)](out, _STEPS, _BLOCK), "cuda")
    return 2 * _CHAINS * _STEPS * _BLOCK * _PROGRAMS / seconds


def _best_seconds(run: Callable[[], Any], device: str) -> float:
    """Seconds of one run: the best of several blocks, on a GPU by CUDA events."""
    run()
    if device != "cuda":
        timer = benchmark.Timer("run()", globals={"run": run}, num_threads=torch.get_num_threads())
        return float(min(timer.timeit(1).mean for _ in range(_REPEATS)))
    seconds = []
    for _ in range(_REPEATS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(_REPEATS):
            run()
        end.record()
        torch.cuda.synchronize()
        seconds.append(start.elapsed_time(end) * 1e-3 / _REPEATS)
    return min(seconds)
