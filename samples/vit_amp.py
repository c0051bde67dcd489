"""A Vision Transformer on random images, trained with and without bfloat16 autocast, uncompiled and compiled.

The program checks that compiling changes the losses by no more than rounding. By default it uses `aot_eager`, which is
quick; its argument names another backend. Its purpose is the comparison of compile modes, of inference and of a
training step, each in float32 and under autocast:

    dynadiag compare --inference --amp none,bf16 samples/vit_amp.py:inference
    dynadiag compare --train --amp none,bf16 samples/vit_amp.py:training
"""

from __future__ import annotations

import contextlib
import hashlib
import sys

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZE, PATCH, CHANNELS, CLASSES = 32, 8, 3, 10
BATCH, STEPS = 8, 3


class Block(nn.Module):
    """Attention and a two-layer network, each after a layer norm, with residual connections."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_network = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm_attention(x)).reshape(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value)
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.network(self.norm_network(x))


class ViT(nn.Module):
    """Images (batch, CHANNELS, SIZE, SIZE) -> logits (batch, CLASSES)."""

    def __init__(self, width: int = 64, depth: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.patches = nn.Conv2d(CHANNELS, width, PATCH, PATCH)
        self.place = nn.Parameter(torch.randn(1, (SIZE // PATCH) ** 2, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2) + self.place
        return self.head(self.norm(self.blocks(x)).mean(dim=1))


class Training(nn.Module):
    """A model with its loss: (images, labels) -> cross entropy."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.model(images), labels)


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Return random images and labels."""
    images = torch.randn(BATCH, CHANNELS, SIZE, SIZE, device=DEVICE)
    return images, torch.randint(CLASSES, (BATCH,), device=DEVICE)


def inference() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """The call that `dynadiag compare --inference` times."""
    torch.manual_seed(0)
    return ViT().to(DEVICE).eval(), (batch()[0],)


def training() -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    """The call that `dynadiag compare --train` times, with its backward."""
    torch.manual_seed(0)
    return Training(ViT()).to(DEVICE), batch()


def losses(backend: str | None, *, amp: bool) -> list[float]:
    """Return the loss of each of STEPS training steps, always from the same weights. None: uncompiled."""
    model, (images, labels) = training()
    step = torch.compile(model, backend=backend) if backend else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast(DEVICE, torch.bfloat16) if amp else contextlib.nullcontext():
            loss = step(images, labels)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def main(backend: str = "aot_eager") -> None:
    hashed = hashlib.sha256()
    for amp, tolerance in ((False, 1e-4), (True, 2e-2)):  # bfloat16 has 8 bits of precision
        uncompiled, compiled = losses(None, amp=amp), losses(backend, amp=amp)
        torch.testing.assert_close(compiled, uncompiled, rtol=tolerance, atol=tolerance)
        print(f"{'bfloat16' if amp else 'float32 '}: " + ", ".join(f"{loss:.4f}" for loss in compiled))
        hashed.update(repr(compiled).encode())
    print("result", hashed.hexdigest()[:16])


if __name__ == "__main__":
    main(*sys.argv[1:])
