"""Measures one warm call on a GPU: its kernels by torch.profiler, and its time with cold caches."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.autograd import DeviceType

from dynadiag.compare.profile_spans import LAUNCHES

_NOT_KERNELS = ("Memcpy", "Memset")
# Name parts of kernels that use tensor cores. cuBLAS for Hopper and later: nvjet. CUTLASS and cuDNN: the instruction
# (16816 is m16n8k16) or "tensorop". Attention kernels of FlashAttention, cuDNN and CUTLASS. Inductor's Triton
# templates (triton_tem_), which are all matrix products.
_TENSOR_CORES = re.compile(
    r"nvjet|xmma|tensorop|wgmma|hmma|[shi](?:884|1688|16816)|flash_(?:fwd|bwd)|fmha_cutlass[FB]_b?f16|^triton_tem_"
)
_ON_VECTOR_UNITS = "simt"  # CUTLASS's name for matrix products without tensor cores
_COLD_CALLS = 20
_FLUSH_BYTES = 256 << 20  # written before each call: five times the L2 cache of an H200


def profile_call(step: Callable[[], Any]) -> dict[str, Any]:
    """Profile one call of ``step``: the fields of `variant_result.Gpu`, as a dict."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        step()
        torch.cuda.synchronize()
    kernels = [(event.name, event.device_time) for event in _kernels(profile)]
    return {
        "kernels": len(kernels),
        "launches": sum(event.name.startswith(LAUNCHES) for event in profile.events()),
        "triton_share": _share(kernels, lambda name: name.startswith("triton_")),
        "tensor_core_share": _share(kernels, uses_tensor_cores),
        "cold": _cold(step),
    }


def uses_tensor_cores(name: str) -> bool:
    """Whether a kernel with this name runs on tensor cores."""
    return bool(_TENSOR_CORES.search(name)) and _ON_VECTOR_UNITS not in name


def _kernels(profile: Any) -> Iterator[Any]:
    for event in profile.events():
        on_device = event.device_type == DeviceType.CUDA and not event.is_user_annotation
        if on_device and not event.name.startswith(_NOT_KERNELS):
            yield event


def _share(kernels: list[tuple[str, float]], counts: Callable[[str], bool]) -> float | None:
    total = sum(time for _, time in kernels)
    return sum(time for name, time in kernels if counts(name)) / total if total else None


def _cold(step: Callable[[], Any]) -> float:
    """Median seconds by CUDA events, with the cache flushed before each call, as ``triton.testing.do_bench`` does."""
    flush = torch.empty(_FLUSH_BYTES, dtype=torch.int8, device="cuda")
    seconds = []
    for _ in range(_COLD_CALLS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.zero_()
        start.record()
        step()
        end.record()
        torch.cuda.synchronize()
        seconds.append(start.elapsed_time(end) * 1e-3)
    return statistics.median(seconds)
