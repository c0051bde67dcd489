"""Whether `dynadiag compare` measures right: times as `torch.utils.benchmark` by hand, kernels as `torch.profiler`.

    python benchmarks/compare.py [--rounds N]

Both time the same functions in this process in turn, block by block, so that other users of the machine disturb both.
On a CPU the profiler sees generated kernels only where Inductor was told to mark them (``cpp.enable_kernel_profile``),
which is done here; calls of libraries it sees as operators.
"""

from __future__ import annotations

import _paths  # noqa: F401 - for what it does to sys.path

# isort: split

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
from dynadiag.compare.compiled import read
from dynadiag.compare.measure import Measurer
from dynadiag.compare.variant import Variant

_SECONDS = 0.02  # of a round: short ones in turn, so that both find the machine free at times
_GENERATED = ("cpp_fused", "triton_")  # in the names of kernels that Inductor makes
_LIBRARY = ("aten::addmm", "aten::mm", "aten::bmm", "aten::_scaled_dot_product", "mkldnn::_linear_pointwise")

Call = tuple[Callable[..., Any], tuple[Any, ...]]


def calls() -> dict[str, Call]:
    """The functions that are measured, from some microseconds to some milliseconds a call."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)  # .eval(): one operator
    return {
        "pointwise": (lambda x: x.relu() + x.sigmoid(), (torch.randn(64, 64),)),
        "product": (lambda x: (x @ x).relu().sum(), (torch.randn(256, 256),)),
        "layer": (lambda x: layer(x).sum(), (torch.randn(8, 16, 64),)),
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
    ours, seen = read(path), [event.name for event in profile.events()]
    generated = sum(any(part in one for part in _GENERATED) for one in seen)
    library = _outermost(profile.events(), _LIBRARY)
    print(f"{name:10} generated: compare {ours.generated}, torch.profiler {generated}", end="")
    print(f"; of libraries: compare {ours.extern}, torch.profiler {library}")


def _outermost(events: Iterable[Any], names: tuple[str, ...]) -> int:
    def inside(event: Any) -> bool:
        parent = event.cpu_parent
        return parent is not None and (parent.name.startswith(names) or inside(parent))

    return sum(event.name.startswith(names) and not inside(event) for event in events)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    for mode in ("eager", "default"):
        for name, call in calls().items():
            with torch.no_grad():
                times(name, call, Variant("make", mode), rounds)
    with tempfile.TemporaryDirectory() as folder:
        for name, call in calls().items():
            kernels(name, call, Path(folder))


if __name__ == "__main__":
    main()
