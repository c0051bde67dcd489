"""Seventeen functions as they occur in models, each compiled by itself, forward and backward.

    python benchmarks/functions.py [DEVICE] [DTYPE]          # cpu and float32

It is a program to record: `gpu_share.py` compares its kernels with those that an H200 got for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812 - its usual name

DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cpu"
DTYPE = getattr(torch, sys.argv[2]) if len(sys.argv) > 2 else torch.float32


def pointwise(x: torch.Tensor) -> torch.Tensor:
    return x.relu() + x.sigmoid()


def softmax(x: torch.Tensor) -> torch.Tensor:
    return F.softmax(x * 0.5, -1)


def layernorm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (x.shape[-1],), w, b)


def rmsnorm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype) * w


def mlp(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.linear(x, w, b))


def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x.float(), y)


def total(x: torch.Tensor) -> torch.Tensor:
    return (x * x).sum()


def columns(x: torch.Tensor) -> torch.Tensor:
    return x.exp().sum(0)


def cat(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, y], 1) * 2


def embed(i: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.embedding(i, w) * 3


def scan(x: torch.Tensor) -> torch.Tensor:
    return x.cumsum(-1)


def variance(x: torch.Tensor) -> torch.Tensor:
    v, m = torch.var_mean(x, -1)
    return v + m


def biggest(x: torch.Tensor) -> torch.Tensor:
    return x.argmax(-1)


def conv(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.relu(F.conv2d(x, w, padding=1))


def rotary(x: torch.Tensor, c: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * c - b * s, b * c + a * s], -1)


def adam(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
    m = m * 0.9 + g * 0.1
    v = v * 0.999 + g * g * 0.001
    return p - 1e-3 * m / (v.sqrt() + 1e-8), m, v


def batchnorm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x, None, None, w, b, training=True)


def calls() -> Iterator[tuple[Callable[..., Any], tuple[torch.Tensor, ...]]]:
    """Each function with its inputs; ``leaf`` makes one that has a gradient."""

    def plain(*sizes: int) -> torch.Tensor:
        return torch.randn(*sizes, device=DEVICE, dtype=DTYPE)

    def leaf(*sizes: int) -> torch.Tensor:
        return plain(*sizes).requires_grad_()

    def integers(below: int, *sizes: int) -> torch.Tensor:
        return torch.randint(below, sizes, device=DEVICE)

    yield pointwise, (leaf(512, 512),)
    yield softmax, (leaf(64, 1024),)
    yield layernorm, (leaf(64, 768), leaf(768), leaf(768))
    yield rmsnorm, (leaf(64, 768), leaf(768))
    yield mlp, (leaf(64, 256), leaf(512, 256), leaf(512))
    yield loss, (leaf(64, 1000), integers(1000, 64))
    yield total, (leaf(1 << 20),)
    yield columns, (leaf(4096, 128),)
    yield cat, (leaf(64, 32), leaf(64, 48))
    yield embed, (integers(100, 64), leaf(100, 64))
    yield scan, (plain(64, 512),)
    yield variance, (leaf(64, 512),)
    yield biggest, (plain(64, 512),)
    yield conv, (leaf(2, 8, 16, 16), leaf(8, 8, 3, 3))
    yield rotary, (leaf(2, 4, 64, 32), plain(64, 16), plain(64, 16))
    yield adam, (plain(4096), plain(4096), plain(4096), plain(4096))
    yield batchnorm, (leaf(8, 16, 14, 14), leaf(16), leaf(16))


def main() -> None:
    torch.manual_seed(0)
    for function, inputs in calls():
        torch._dynamo.reset()
        made = torch.compile(function)(*inputs)
        first = made if isinstance(made, torch.Tensor) else made[0]
        if first.requires_grad:
            first.float().square().mean().backward()


if __name__ == "__main__":
    main()
