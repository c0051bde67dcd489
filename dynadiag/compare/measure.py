"""Measures one variant inside its process: time, memory, and what runs on a GPU.

Times come from `torch.utils.benchmark`. A call that can be timed only once is timed with its clock, which waits for
the accelerator. Warm calls are timed with ``Timer.blocked_autorange``, with the program's own number of threads (a
``Timer`` uses one by default).

On a GPU one more warm call is profiled for its kernels, and one is timed with cold caches.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch.autograd import DeviceType
from torch.utils import benchmark

from dynadiag.compare.profile_spans import CALL, GRAPH, LAUNCHES, ProfileSpan, compile_ids_run, warm_calls
from dynadiag.compare.variant import Variant
from dynadiag.torch_private.operator_profile import allocated_at_once, computes, mark_graphs, profiler_mark

_WITHOUT_CUDA_GRAPHS = ("default", "max-autotune-no-cudagraphs")  # modes
# Calls before a variant is warm. With CUDA graphs the first call compiles and runs, the second records the graph, and
# the third replays it.
WARM_UP_CALLS = 3
# Calls in a profile: a median needs five, and the events of more than 50 take long to read
MIN_PROFILED_CALLS, MAX_PROFILED_CALLS = (5, 50)
# Work that is the same in every program, timed in each round: how fast the machine was then.
_YARDSTICK, _SIDE, _YARDSTICK_SHARE = "(square @ square).sin_().sum()", 256, 0.2


class Measurer:
    """Measures one variant of the call ``fn(*args, **kwargs)``."""

    def __init__(self, call: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]], variant: Variant) -> None:
        self._fn, args, self._kwargs = call
        self._variant = variant
        self._compiled = _compiled(self._fn, variant)
        self._step = self._step_of(args)
        self._marked_step = self._step_of(args, marked=True)
        self._other_steps: list[Callable[[], Any]] = []
        self._spans: list[ProfileSpan] = []

    def first(self) -> dict[str, Any]:
        """Make the first calls: the seconds of each, their peak memory (bytes), the torch version and the device."""
        before = _memory_status("VmRSS")
        if _on_gpu():
            torch.cuda.reset_peak_memory_stats()
        seconds = [_timed_call(self._step) for _ in range(WARM_UP_CALLS)]
        # Linux counts pages in batches: the peak can seem to lie below.
        peaks = {"host": max(0, _memory_status("VmHWM") - before), "device": _device_peak()}
        if _on_gpu():
            torch.cuda.reset_peak_memory_stats()
        return {"seconds": seconds, "memory": peaks, **_run_info()}

    def round(self, seconds: float) -> dict[str, Any]:
        """Time warm calls for about ``seconds``: seconds per call of each block, and those of the `_YARDSTICK`."""
        times = _timer("step()", step=self._step).blocked_autorange(min_run_time=seconds).times
        square = torch.ones(_SIDE, _SIDE)
        yardstick = _timer(_YARDSTICK, square=square).blocked_autorange(min_run_time=seconds * _YARDSTICK_SHARE)
        return {"times": times, "yardstick": yardstick.median}

    def count(self) -> dict[str, Any]:
        """Profile one warm call: its peak memory (bytes), and on a GPU its kernels."""
        if not _on_gpu():
            return {"memory": {"host": allocated_at_once(self._step), "device": None}}
        memory = {"host": None, "device": _device_peak()}  # before the profile, which writes to a buffer
        return {"memory": memory, "gpu": profile_call(self._step)}

    def inputs(self, each: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
        """Call once with each of the other arguments: the seconds of each call, in order."""
        self._other_steps = [self._step_of(args, marked=True) for args in each]
        return {"seconds": [_timed_call(self._step_of(args)) for args in each]}

    def profile(self, seconds: float) -> dict[str, Any]:
        """Profile warm calls for about ``seconds``, before any other input: torch may then use other code for them.

        Only the call of the function is marked, not the rest of the step, such as its backward pass.
        """
        with mark_graphs(GRAPH):
            self._spans = _profiled(self._repeated(seconds))
        return {}

    def warm(self) -> dict[str, Any]:
        """Which compiled code the profiled calls ran, and which one call with each other input runs."""
        with mark_graphs(GRAPH):
            others = compile_ids_run(_profiled(self._other_steps))
        return {"warm": msgspec.to_builtins(warm_calls(self._spans, others))}

    def _repeated(self, seconds: float) -> Iterator[Callable[[], Any]]:
        """Repeat the step for ``seconds``, at least `MIN_PROFILED_CALLS` and at most `MAX_PROFILED_CALLS` times."""
        end = benchmark.timer() + seconds
        for number in range(MAX_PROFILED_CALLS):
            if number >= MIN_PROFILED_CALLS and benchmark.timer() > end:
                return
            yield self._marked_step

    def _step_of(self, args: tuple[Any, ...], *, marked: bool = False) -> Callable[[], Any]:
        """The step that is timed: the call as the variant makes it, and its backward pass under ``--train``.

        ``marked`` puts a mark around the call, so that a profile can separate it from the rest of the step.
        """
        call = partial(self._compiled, *args, **self._kwargs)
        step = _autocast(partial(_call_marked, call) if marked else call, self._variant)
        if self._variant.step == "inference":
            step = torch.no_grad()(step)
        elif self._variant.step == "train":
            step = partial(_train, step, tuple(_leaves(self._fn, args, self._kwargs)))
        return _with_step_begin(step, self._variant)


def _call_marked(call: Callable[[], Any]) -> Any:
    with profiler_mark(CALL):
        return call()


def _profiled(steps: Iterable[Callable[[], Any]]) -> list[ProfileSpan]:
    """Profile the steps: the spans (seconds) of the thread that makes the calls."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for step in steps:
            step()
    events = profile.events()
    threads = {event.thread for event in events if event.name == CALL}
    return [
        ProfileSpan(event.name, event.time_range.start * 1e-6, event.time_range.end * 1e-6)
        for event in events
        if event.thread in threads
        and event.device_type == DeviceType.CPU
        and ("::" not in event.name or computes(event.name))
    ]


def _timer(statement: str, **names: Any) -> benchmark.Timer:
    """A timer with the program's own number of threads: one of torch's has one thread."""
    return benchmark.Timer(statement, globals=names, num_threads=torch.get_num_threads())


def _timed_call(step: Callable[[], Any]) -> float:
    start = benchmark.timer()
    step()
    return float(benchmark.timer() - start)


def _compiled(fn: Callable[..., Any], variant: Variant) -> Callable[..., Any]:
    if not variant.compiles:
        return fn
    if variant.backend is not None:
        return torch.compile(fn, backend=variant.backend, dynamic=variant.dynamic)
    return torch.compile(fn, mode=variant.mode, dynamic=variant.dynamic)


def _autocast(call: Callable[[], Any], variant: Variant) -> Callable[[], Any]:
    if variant.amp is None:
        return call
    device, dtype = "cuda" if _on_gpu() else "cpu", getattr(torch, variant.amp)

    def under_autocast() -> Any:
        with torch.autocast(device, dtype):
            return call()

    return under_autocast


def _with_step_begin(call: Callable[[], Any], variant: Variant) -> Callable[[], Any]:
    """Tell torch when each step begins, so that CUDA graphs may reuse the memory of the last result.

    That takes two microseconds, so it is done only where CUDA graphs may be recorded.
    """
    if not (variant.compiles and _on_gpu() and _records_cuda_graphs(variant)):
        return call

    def step() -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return call()

    return step


def _records_cuda_graphs(variant: Variant) -> bool:
    """Whether the variant may record CUDA graphs: by its mode, or by the program's own Inductor configuration."""
    from torch._inductor import config as inductor_config

    return variant.mode not in _WITHOUT_CUDA_GRAPHS or bool(inductor_config.triton.cudagraphs)


def _train(forward: Callable[[], Any], leaves: tuple[torch.Tensor, ...]) -> None:
    """Run forward and backward. The loss is the mean of the result; the means of several tensors are added."""
    for leaf in leaves:
        leaf.grad = None
    parts = [part.float().mean() for part in _tensors(forward()) if part.requires_grad]
    if not parts:
        raise ValueError("nothing in the result requires a gradient: there is no backward to run for --train")
    torch.stack(parts).sum().backward() if len(parts) > 1 else parts[0].backward()


def _leaves(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    """The tensors that get gradients: parameters of modules, and leaf tensors among the arguments."""
    for value in (fn, *args, *kwargs.values()):
        if isinstance(value, torch.nn.Module):
            yield from value.parameters()
        else:
            yield from (tensor for tensor in _tensors(value) if tensor.requires_grad and tensor.is_leaf)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from (tensor for item in value.values() for tensor in _tensors(item))
    elif isinstance(value, (tuple, list)):
        yield from (tensor for item in value for tensor in _tensors(item))


def _on_gpu() -> bool:
    """Whether this process uses memory on a GPU. The check itself does not initialize CUDA.

    An initialized CUDA is not enough: Dynamo initializes it on every machine with a GPU, to save the random state.
    """
    return torch.cuda.is_initialized() and torch.cuda.max_memory_reserved() > 0


def _run_info() -> dict[str, Any]:
    device = torch.cuda.get_device_name() if _on_gpu() else "cpu"
    return {"torch": str(torch.__version__), "threads": torch.get_num_threads(), "device": device}


def _device_peak() -> int | None:
    return torch.cuda.max_memory_allocated() if _on_gpu() else None


def _memory_status(name: str) -> int:
    """A memory size of this process in bytes. /proc/self/status has it in KiB. Raises OSError if it is missing."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {name}")


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
    return {
        "kernels": len(kernels),
        "launches": sum(event.name.startswith(LAUNCHES) for event in profile.events()),
        "triton_share": _share(kernels, lambda name: name.startswith("triton_")),
        "tensor_core_share": _share(kernels, uses_tensor_cores),
        "cold": statistics.median(seconds),
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
