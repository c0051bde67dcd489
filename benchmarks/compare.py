"""Whether `dynadiag compare` measures right: times as `torch.utils.benchmark` by hand, kernels as `torch.profiler`.

    python benchmarks/compare.py [--rounds N] [--device cuda]

Both time the same functions in this process in turn, block by block, so that other users of the machine disturb both.
On a CPU the profiler sees generated kernels only where Inductor was told to mark them (``cpp.enable_kernel_profile``),
which is done here; calls of libraries it sees as operators. On a GPU it sees every kernel, and the peak of memory is
held against `torch.cuda.max_memory_allocated`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch._inductor import config
from torch.utils import benchmark

import dynadiag
from dynadiag.compare.measure import Measurer
from dynadiag.compare.variant import Variant
from dynadiag.compare.variant_result import read_summary

_SECONDS = 0.02  # of a round: short ones in turn, so that both find the machine free at times
_GENERATED = ("cpp_fused", "triton_")  # in the names of kernels that Inductor makes
_LIBRARY = ("aten::addmm", "aten::mm", "aten::bmm", "aten::_scaled_dot_product", "mkldnn::_linear_pointwise")

Call = tuple[Callable[..., Any], tuple[Any, ...]]


def calls(device: str) -> dict[str, Call]:
    """The functions that are measured, from some microseconds to some milliseconds a call."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)  # .eval(): one operator
    layer = layer.to(device)
    return {
        "pointwise": (lambda x: x.relu() + x.sigmoid(), (torch.randn(64, 64, device=device),)),
        "product": (lambda x: (x @ x).relu().sum(), (torch.randn(256, 256, device=device),)),
        "layer": (lambda x: layer(x).sum(), (torch.randn(8, 16, 64, device=device),)),
    }


def times(name: str, call: Call, variant: Variant, rounds: int) -> None:
    """Print the median of each way, and their ratio: of all blocks, and of the fastest."""
    fn, args = call
    torch._dynamo.reset()
    subject = Measurer((fn, args, {}), variant)
    subject.first()
    by_hand = torch.compile(fn) if variant.compiles else fn
    timer = benchmark.Timer("f(*args)", globals={"f": by_hand, "args": args}, num_threads=torch.get_num_threads())
    by_hand(*args)
    ours, theirs = list[float](), list[float]()
    for _ in range(rounds):
        ours += subject.round(_SECONDS)["times"]
        theirs += timer.blocked_autorange(min_run_time=_SECONDS).times
    least, middle = min(ours) / min(theirs), median(ours) / median(theirs)
    figures = f"compare {median(ours) * 1e6:9.1f} us   by hand {median(theirs) * 1e6:9.1f} us"
    print(f"{name:10} {variant.label:8} {figures}   ratio {middle:.3f}, of the fastest blocks {least:.3f}")


def kernels(name: str, call: Call, folder: Path) -> None:
    """Print the kernels of one warm call, as compare counts them and as the profiler saw them."""
    fn, args = call
    torch._dynamo.reset()
    with torch.no_grad(), config.patch({"cpp.enable_kernel_profile": True, "fx_graph_cache": False}):
        with dynadiag.record(folder / f"{name}.dynadiag") as path:
            compiled = torch.compile(fn)
            compiled(*args)
        with torch.profiler.profile() as profile:
            compiled(*args)
    ours, seen = read_summary(path), [event.name for event in profile.events()]
    generated = sum(any(part in one for part in _GENERATED) for one in seen)
    library = _outermost(profile.events(), _LIBRARY)
    print(f"{name:10} generated: compare {ours.generated}, torch.profiler {generated}", end="")
    print(f"; of libraries: compare {ours.extern}, torch.profiler {library}")


def on_gpu(name: str, call: Call, mode: str) -> None:
    """Print the kernels and the peak of memory of one warm call, as compare has them and by hand."""
    fn, args = call
    torch._dynamo.reset()
    variant = Variant("make", mode)
    subject = Measurer((fn, args, {}), variant)
    subject.first()
    peak = subject.round(_SECONDS)["memory"]["device"]
    counted = subject.count()["gpu"]
    by_hand = torch.compile(fn) if variant.compiles else fn
    for _ in range(3):
        by_hand(*args)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    by_hand(*args)
    torch.cuda.synchronize()
    allocated = torch.cuda.max_memory_allocated()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        by_hand(*args)
        torch.cuda.synchronize()
    kernels = [e.name for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    kernels = [kernel for kernel in kernels if not kernel.startswith(("Memcpy", "Memset"))]
    print(f"{name:10} {mode:8} kernels: compare {counted['kernels']}, torch.profiler {len(kernels)}", end="")
    print(f"; peak: compare {peak}, max_memory_allocated {allocated}")


def _outermost(events: Iterable[Any], names: tuple[str, ...]) -> int:
    def inside(event: Any) -> bool:
        parent = event.cpu_parent
        return parent is not None and (parent.name.startswith(names) or inside(parent))

    return sum(event.name.startswith(names) and not inside(event) for event in events)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    modes = ("eager", "default")
    for mode in modes:
        for name, call in calls(options.device).items():
            with torch.no_grad():
                times(name, call, Variant("make", mode), options.rounds)
    if options.device != "cpu":
        for mode in modes:
            for name, call in calls(options.device).items():
                with torch.no_grad():
                    on_gpu(name, call, mode)
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, call in calls("cpu").items():
            kernels(name, call, Path(folder))


if __name__ == "__main__":
    main()
