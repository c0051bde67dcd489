"""Compare what `explain --memory` says a training graph saves with the storages that autograd keeps for it.

Compiles a training step of a small GPT (with and without autocast) and of a convolutional network with Inductor, and
again with the budgets that its help names, whose effect is compared with what it says. Autograd's own count: the
distinct storages that `saved_tensors_hooks` sees while the compiled forward runs, without parameters, buffers, inputs.

    python benchmarks/memory.py
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

import dynadiag
from dynadiag.kernels.memory import GraphMemory, read_memory
from dynadiag.recording.opening import open_recording

_LIMIT = 0.05  # of the storages, that the figure may be off


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
    """Three blocks, with the embedding as the head."""

    def __init__(self, words: int = 512, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(3))
        self.last = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x)
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


def main() -> int:
    torch.manual_seed(0)
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


if __name__ == "__main__":
    sys.exit(main())
