"""Compare what `explain --memory` says a training graph saves with the storages that autograd keeps for it.

Compiles a training step of a small GPT (with and without autocast) and of a convolutional network with Inductor, and
again with the budgets that its help names, whose effect is compared with what it says. Autograd's own count: the
distinct storages that `saved_tensors_hooks` sees while the compiled forward runs, without parameters, buffers, inputs.

    python benchmarks/memory.py
    python benchmarks/memory.py --cuda [--layers N] [--length N] [--batch N]    # needs an NVIDIA GPU

With `--cuda`: a training step of GPT-2 (124M) against torch's history of the CUDA allocator: the blocks that are live
between forward and backward, and those at the peak of the step. Compiled with Inductor, their sum; with the graphs run
as AOTAutograd leaves them, also each line of this file that saves 1% or more, for torch then knows the line of each
block (`torch.cuda.memory._snapshot(augment_with_fx_traces=True)`). Exit code 1 if a sum or a line is off by over 5%.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import dynadiag
from dynadiag.kernels.memory import GraphMemory, read_memory
from dynadiag.recording.opening import open_recording

_LIMIT = 0.05  # of the storages, that the figure may be off
_SHARE = 0.01  # of what is saved: lines with less are not compared, as the allocator rounds small blocks up
_BACKENDS = ("inductor", "aot_eager_decomp_partition")
_HERE = re.compile(rf'File "{re.escape(__file__)}", line (\d+)')


class Block(nn.Module):
    """A block of a transformer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.projected = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.mixed(self.before(x)).split(width, 2)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projected(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(functional.gelu(self.wide(self.between(x))))


class GPT(nn.Module):
    """Blocks with the embedding as the head: three small ones, or with other numbers GPT-2."""

    def __init__(self, words: int = 512, width: int = 64, layers: int = 3, heads: int = 4, length: int = 128) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.last = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x) + self.positions(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.last(x), self.embedding.weight)


def cnn() -> nn.Module:
    """Three convolutions with batch norm, dropout and pooling."""
    widths = [3, 16, 32, 64]
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.1), nn.Linear(64 * 16, 10))


def measured(step: Callable[[Tensor], Tensor], model: nn.Module, x: Tensor) -> int:
    """Bytes of the storages that one call saves and that are no parameter, buffer or input."""
    own = {one.untyped_storage().data_ptr() for one in (*model.parameters(), *model.buffers(), x)}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = step(x)
    out.float().sum().backward()
    return sum(kept.values())


def run(name: str, model: nn.Module, x: Tensor, budget: float = 1.0, half: bool = False) -> tuple[GraphMemory, float]:
    """Compile, record and measure one model. Returns what was read and how far it is off."""
    torch.compiler.reset()

    def step(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            out: Tensor = model(x)
        return out

    compiled = torch.compile(step)
    with tempfile.TemporaryDirectory() as folder, torch._functorch.config.patch(activation_memory_budget=budget):
        path = Path(folder, "step.dynadiag")
        with dynadiag.record(path):
            compiled(x).float().sum().backward()
        with open_recording(path) as recording:
            graph = read_memory(recording).graphs[0]
    kept = measured(compiled, model, x)
    off = abs(graph.activations - kept) / max(kept, 1)
    print(f"{name:24} budget {budget:<5} read {graph.activations:>12,} kept {kept:>12,} off {off:.2%}")
    return graph, off


Trace = Sequence[Mapping[str, Any]]  # what the CUDA allocator did, in its order


def history() -> Trace:
    """What the allocator did since the history began. Frames of graphs have the line of the program."""
    torch.cuda.synchronize()
    traces: list[Trace] = torch.cuda.memory._snapshot(augment_with_fx_traces=True)["device_traces"]
    return traces[torch.cuda.current_device()]


def live(trace: Trace) -> dict[int, Mapping[str, Any]]:
    """The allocations of a trace that were not freed in it, by their position."""
    blocks: dict[int, int] = {}
    for position, entry in enumerate(trace):
        if entry["action"] == "alloc":
            blocks[entry["addr"]] = position
        elif entry["action"] == "free_completed":
            blocks.pop(entry["addr"], None)
    return {position: trace[position] for position in blocks.values()}


def at_peak(trace: Trace) -> dict[int, Mapping[str, Any]]:
    """The allocations that are live when they hold the most."""
    change = {"alloc": 1, "free_completed": -1}
    held = list(accumulate(change.get(entry["action"], 0) * entry.get("size", 0) for entry in trace))
    return live(trace[: held.index(max(held)) + 1])


def by_line(blocks: Iterable[Mapping[str, Any]]) -> Counter[int]:
    """Bytes by the innermost line of this file at which a block's graph asked for it; 0 where no line is known."""
    sizes: Counter[int] = Counter()
    for block in blocks:
        told = " ".join(frame.get("fx_original_trace", "") for frame in block["frames"])
        sizes[int((_HERE.findall(told) or ["0"])[-1])] += block["size"]
    return sizes


def run_on_cuda(backend: str, half: bool, layers: int, length: int, batch: int) -> float:
    """Compare one training step of GPT-2 with the allocator's history. Returns by how much the worst figure is off."""
    torch.compiler.reset()
    words = torch.randint(0, 50257, (batch, length), device="cuda")
    model = GPT(50257, 768, layers, 12, length).cuda()
    optimizer = torch.optim.AdamW(model.parameters())

    def loss(x: Tensor) -> Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=half):
            return functional.cross_entropy(model(x)[:, :-1].flatten(0, 1), x[:, 1:].flatten())

    compiled = torch.compile(loss, backend=backend)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "step.dynadiag")
        with dynadiag.record(path):
            compiled(words).backward()
        with open_recording(path) as recording:
            graph = read_memory(recording).graphs[0]
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.memory._record_memory_history(stacks="python")
    value = compiled(words)
    forward = history()
    value.backward()
    peak = at_peak(history())
    torch.cuda.memory._record_memory_history(enabled=None)
    kept = live(forward)
    rows: Counter[int] = Counter()
    for row in graph.saved:
        rows[row.line or 0] += row.bytes or 0
    lines = by_line(kept.values()), by_line(block for position, block in peak.items() if position < len(forward))
    print(f"\n{backend}{', autocast' if half else ''}: peak {sum(block['size'] for block in peak.values()):,} bytes")
    print(f"{'line':>8} {'read':>16} {'live':>16} {'at the peak':>16}")
    figures = [("all", graph.activations, lines[0].total(), lines[1].total())]
    if lines[0].keys() - {0}:  # not of Inductor, whose generated code has no line of the program
        figures += [(str(line), rows[line], lines[0][line], lines[1][line]) for line in sorted(rows | lines[0])]
    offs = [0.0]
    for line, read, held, highest in figures:
        is_compared = max(read, held) >= _SHARE * graph.activations
        off = abs(read - held) / max(held, 1)
        offs += [off] * is_compared
        print(f"{line:>8} {read:>16,} {held:>16,} {highest:>16,} {f'off {off:.2%}' if is_compared else ''}")
    return max(offs)


def on_cuda(layers: int, length: int, batch: int) -> int:
    torch.fx.experimental._config.enrich_profiler_metadata = True
    sizes = layers, length, batch
    return int(max(run_on_cuda(backend, half, *sizes) for backend in _BACKENDS for half in (False, True)) > _LIMIT)


def on_cpu() -> int:
    words = torch.randint(0, 512, (4, 128))
    worst = []
    for name, make, x, half in [
        ("GPT", GPT, words, False),
        ("GPT, autocast", GPT, words, True),
        ("CNN", cnn, torch.randn(8, 3, 32, 32), False),
    ]:
        before, off = run(name, make(), x, half=half)
        worst.append(off)
        said = {saving.how: saving.bytes for saving in before.savings}
        for how, budget in (("recompute", 0.99), ("no_grad", 0.0)):
            after, off = run(name, make(), x, budget, half)
            worst.append(off)
            less = before.activations - after.activations
            print(f"    {how}: said {said.get(how, 0):,}, saved {less:,} bytes less")
    return int(max(worst) > _LIMIT)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuda", action="store_true", help="GPT-2 against the history of the CUDA allocator")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--length", type=int, default=512, help="tokens")
    parser.add_argument("--batch", type=int, default=4)
    chosen = parser.parse_args()
    torch.manual_seed(0)
    return on_cuda(chosen.layers, chosen.length, chosen.batch) if chosen.cuda else on_cpu()


if __name__ == "__main__":
    sys.exit(main())
