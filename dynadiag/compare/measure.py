"""Measuring one variant from inside its process: time, memory, what runs on a GPU.

Times are taken by `torch.utils.benchmark`: its clock, which waits for an accelerator, for calls that can be timed
once only, and its ``Timer.blocked_autorange`` for warm ones, with the program's own number of threads (a ``Timer`` by
itself sets one).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.utils import benchmark

from dynadiag.compare import gpu
from dynadiag.compare.spans import CALL, GRAPH, Span, ran, warm_calls
from dynadiag.compare.variant import Variant
from dynadiag.torch_private.warm import mark, marked_graphs

__all__ = ["WARM_UP", "Measurer"]

_WITHOUT_CUDA_GRAPHS = ("default", "max-autotune-no-cudagraphs")  # modes
# Calls before a variant counts as warm: with CUDA graphs the first compiles and runs, the second records, the third
# replays.
WARM_UP = 3
FEWEST, MOST = 5, 50  # calls in a profile of warm ones: for a median; events of more take long to read


class Measurer:
    """One variant of the call ``fn(*args, **kwargs)``."""

    def __init__(self, call: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]], variant: Variant) -> None:
        self._fn, args, self._kwargs = call
        self._variant = variant
        self._compiled = _compiled(self._fn, variant)
        self._step = self._step_of(args)
        self._seen = self._step_of(args, marked=True)
        self._others: list[Callable[[], Any]] = []
        self._before_warm: int | None = None

    def first(self) -> dict[str, Any]:
        """Seconds of the first calls, one by one, the peak of memory (bytes) in them, and where they ran."""
        before = _status("VmRSS")
        if _on_gpu():
            torch.cuda.reset_peak_memory_stats()
        seconds = [_once(self._step) for _ in range(WARM_UP)]
        peaks = {"host": _status("VmHWM") - before, "device": _device_peak()}
        self._settle()
        return {"seconds": seconds, "memory": peaks, **_facts()}

    def round(self, seconds: float) -> dict[str, Any]:
        """Seconds a call of each block of calls, for about ``seconds``, and the peak of memory in warm calls so far."""
        timer = benchmark.Timer("step()", globals={"step": self._step}, num_threads=torch.get_num_threads())
        times = timer.blocked_autorange(min_run_time=seconds).times
        host = None if self._before_warm is None else _status("VmHWM") - self._before_warm
        return {"times": times, "memory": {"host": host, "device": _device_peak()}}

    def count(self) -> dict[str, Any]:
        """What one warm call does on a GPU; nothing where no GPU is used."""
        return {"gpu": gpu.measure(self._step)} if _on_gpu() else {}

    def inputs(self, each: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
        """Seconds of one call with each of other arguments, in their order."""
        self._others = [self._step_of(args, marked=True) for args in each]
        return {"seconds": [_once(self._step_of(args)) for args in each]}

    def warm(self, seconds: float) -> dict[str, Any]:
        """The compiled code that warm calls run, in a profile of about ``seconds``, then of one with each other input.

        The calls are marked around the function itself: what else a step does, its backward too, is not in them.
        """
        with marked_graphs(GRAPH):
            spans = _profiled(self._repeated(seconds))
            others = ran(_profiled(self._others))
        return {"warm": warm_calls(spans, others).to_json()}

    def _repeated(self, seconds: float) -> Iterator[Callable[[], Any]]:
        """The step as often as goes into ``seconds``, within `FEWEST` and `MOST`."""
        end = benchmark.timer() + seconds
        for number in range(MOST):
            if number >= FEWEST and benchmark.timer() > end:
                return
            yield self._seen

    def _step_of(self, args: tuple[Any, ...], *, marked: bool = False) -> Callable[[], Any]:
        """What is timed: the call in the variant's way, with its backward where that is asked for.

        ``marked`` is for a profile, where the call by itself has to be told from the rest of the step.
        """
        call = partial(self._compiled, *args, **self._kwargs)
        step = _autocast(partial(_called, call) if marked else call, self._variant)
        if self._variant.step == "inference":
            step = torch.no_grad()(step)
        elif self._variant.step == "train":
            step = partial(_train, step, tuple(_leaves(self._fn, args, self._kwargs)))
        return _marked(step, self._variant)

    def _settle(self) -> None:
        """Have peaks counted anew. Linux sets VmHWM back to what is resident on a 5 (proc_pid_clear_refs(5))."""
        if _on_gpu():
            torch.cuda.reset_peak_memory_stats()
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:  # a kernel without it: no peak of warm calls
            self._before_warm = None
        else:
            self._before_warm = _status("VmRSS")


def _called(call: Callable[[], Any]) -> Any:
    """The call under a mark that stands in profiles."""
    with mark(CALL):
        return call()


def _profiled(steps: Iterable[Callable[[], Any]]) -> list[Span]:
    """What the thread that makes the calls went through in them, in seconds."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for step in steps:
            step()
    events = profile.events()
    threads = {event.thread for event in events if event.name == CALL}
    return [
        Span(event.name, event.time_range.start * 1e-6, event.time_range.end * 1e-6)
        for event in events
        if event.thread in threads and event.device_type == DeviceType.CPU
    ]


def _once(step: Callable[[], Any]) -> float:
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


def _marked(call: Callable[[], Any], variant: Variant) -> Callable[[], Any]:
    """Each call says that what the last one returned is done with, so that CUDA graphs may write there again.

    It takes two microseconds: where no CUDA graph is recorded, nothing is said.
    """
    if not (variant.compiles and _on_gpu() and _records_cuda_graphs(variant)):
        return call

    def marked() -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return call()

    return marked


def _records_cuda_graphs(variant: Variant) -> bool:
    """Whether it may; `inductor_config` is the program's own."""
    from torch._inductor import config as inductor_config

    return variant.mode not in _WITHOUT_CUDA_GRAPHS or bool(inductor_config.triton.cudagraphs)


def _train(forward: Callable[[], Any], leaves: tuple[torch.Tensor, ...]) -> None:
    """Forward and backward. A result that is no scalar is averaged; a result of several tensors is summed over them."""
    for leaf in leaves:
        leaf.grad = None
    parts = [part.float().mean() for part in _tensors(forward()) if part.requires_grad]
    if not parts:
        raise ValueError("nothing in the result requires a gradient: there is no backward to run for --train")
    torch.stack(parts).sum().backward() if len(parts) > 1 else parts[0].backward()


def _leaves(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    """What gets gradients: parameters of the module, and tensors among the arguments or of modules there."""
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
    """Whether this process has anything on a GPU; asking does not make it use one.

    That CUDA is initialized is not enough: Dynamo does that wherever there is a GPU, to keep its random state.
    """
    return torch.cuda.is_initialized() and torch.cuda.max_memory_reserved() > 0


def _facts() -> dict[str, Any]:
    device = torch.cuda.get_device_name() if _on_gpu() else "cpu"
    return {"torch": str(torch.__version__), "threads": torch.get_num_threads(), "device": device}


def _device_peak() -> int | None:
    return torch.cuda.max_memory_allocated() if _on_gpu() else None


def _status(name: str) -> int:
    """A size of this process in bytes, from /proc/self/status, where it stands in KiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {name}")
