"""A transformer block in bfloat16, forward and backward.

    python benchmarks/block.py [DEVICE]          # cpu

It is a program to record: `gpu_share.py` compares its kernels with those that an H200 got for it.
"""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - its usual name

DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cpu"


class Block(nn.Module):
    """Layer norms before attention and network."""

    def __init__(self, width: int = 1024, heads: int = 16) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, s, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, s, w))
        h = F.gelu(self.up(self.norm2(x)))
        return x + self.down(h)


def main() -> None:
    torch.manual_seed(0)
    block = torch.compile(Block().to(DEVICE, torch.bfloat16))
    x = torch.randn(8, 1024, 1024, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    block(x).float().square().mean().backward()


if __name__ == "__main__":
    main()
