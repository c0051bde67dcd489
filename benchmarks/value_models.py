"""Small models of five kinds for `values.py`. Each operator that a fault is planted in stands on a line of its own.

    python benchmarks/value_models.py MODEL [FAULT]

It compiles the model, with the fault planted in the compiler, and makes one call, forward and backward.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - its usual name


class GPT2(nn.Module):
    """Two blocks of a decoder."""

    def __init__(self, width: int = 64, layers: int = 2, words: int = 96, length: int = 32) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        logits = x @ self.words.weight.T
        return F.cross_entropy(logits.flatten(0, 1), tokens.flatten())


class Block(nn.Module):
    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.first(x)
        q, k, v = self.qkv(normed).chunk(3, -1)
        q, k, v = (part.reshape(*part.shape[:-1], self.heads, -1).transpose(1, 2) for part in (q, k, v))
        scores = q @ k.transpose(-1, -2)
        scores = scores / q.shape[-1] ** 0.5
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril()
        scores = scores.masked_fill(~mask, float("-inf"))
        shares = torch.softmax(scores, -1)
        mixed = (shares @ v).transpose(1, 2).flatten(2)
        x = x + self.out(mixed)
        normed = self.second(x)
        hidden = self.up(normed)
        hidden = F.gelu(hidden)
        return x + self.down(hidden)


class ViT(nn.Module):
    """Patches, two blocks, a class."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.block = Block(width)
        self.head = nn.Linear(width, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        patches = self.patches(images)
        x = patches.flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        x = self.block(x)
        x = torch.tanh(x)
        scores = self.head(x[:, 0])
        return F.log_softmax(scores, -1).pow(2).mean()


class UNet(nn.Module):
    """One level down and up, with a step embedding."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.into = nn.Conv2d(3, width, 3, padding=1)
        self.norm = nn.GroupNorm(4, width)
        self.down = nn.Conv2d(width, 2 * width, 3, 2, padding=1)
        self.middle = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.out = nn.Conv2d(3 * width, 3, 3, padding=1)
        self.step = nn.Linear(8, 2 * width)

    def forward(self, images: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        angles = steps[:, None] * torch.exp(-torch.arange(4, device=steps.device) / 4)
        waves = torch.cat([torch.sin(angles), torch.cos(angles)], -1)
        waves = waves.to(images.dtype)
        first = self.into(images)
        first = self.norm(first)
        first = F.silu(first)
        low = self.down(first)
        low = low + self.step(waves)[:, :, None, None]
        low = torch.relu(low)
        low = self.middle(low)
        high = F.interpolate(low, scale_factor=2.0, mode="nearest")
        both = torch.cat([high, first], 1)
        noise = self.out(both)
        noise = F.pad(noise, (1, 1, 1, 1))
        return noise.square().mean()


class Mamba(nn.Module):
    """A selective scan, written as a sum of decayed inputs."""

    def __init__(self, width: int = 32, state: int = 4) -> None:
        super().__init__()
        self.into = nn.Linear(width, 2 * width)
        self.conv = nn.Conv1d(width, width, 3, padding=2, groups=width)
        self.step, self.keys, self.reads = nn.Linear(width, width), nn.Linear(width, state), nn.Linear(width, state)
        self.decay = nn.Parameter(torch.rand(width, state))
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner, gate = self.into(x).chunk(2, -1)
        inner = self.conv(inner.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2)
        inner = F.silu(inner)
        step = F.softplus(self.step(inner))
        decays = -step.unsqueeze(-1) * torch.exp(self.decay)
        totals = torch.cumsum(decays, 1)
        added = (step * inner).unsqueeze(-1) * self.keys(inner).unsqueeze(2)
        weighed = added * torch.exp(-totals.clamp(-20, 0))
        states = torch.cumsum(weighed, 1) * torch.exp(totals.clamp(-20, 0))
        y = (states * self.reads(inner).unsqueeze(2)).sum(-1)
        y = y * torch.sigmoid(gate)
        y = self.out(y)
        scale = torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)
        y = y * scale
        return y.abs().mean()


class Loop(nn.Module):
    """The step of a training loop: a small network, a loss with clipped weights, an exponential average."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, 8)
        self.register_buffer("average", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        hidden = F.leaky_relu(hidden)
        wide = hidden.to(torch.bfloat16).to(hidden.dtype)
        total = wide.sum(-1, keepdim=True)
        hidden = hidden / (1 + total.abs())
        scores = self.second(hidden)
        level = (scores * 4).to(torch.int32).to(scores.dtype)
        self.average.mul_(0.9).add_(0.1 * scores.detach().mean(0))
        weights = torch.clamp(scores, -1, 1)
        worst = torch.logsumexp(scores, -1)
        return (weights - level).square().mean() + worst.mean() + self.average.sum()


def calls() -> dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[torch.Tensor, ...]]]]:
    """For each model how to make it, and its inputs."""
    return {
        "gpt2": (GPT2, lambda: (torch.randint(0, 96, (2, 32)),)),
        "vit": (ViT, lambda: (torch.randn(2, 3, 32, 32),)),
        "unet": (UNet, lambda: (torch.randn(2, 3, 16, 16), torch.tensor([0.3, 0.7]))),
        "mamba": (Mamba, lambda: (torch.randn(2, 16, 32),)),
        "loop": (Loop, lambda: (torch.randn(24, 48),)),
    }


def main() -> None:
    """Compile the model, and run it forward and backward once."""
    model, fault = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    if fault:
        from value_faults import FAULTS

        FAULTS[fault].plant()
    torch.manual_seed(0)
    make, inputs = calls()[model]
    made = make()
    for parameter in made.parameters():  # norms and biases that are 1 and 0 hide faults
        parameter.data += 0.1 * torch.randn_like(parameter)
    loss = torch.compile(made)(*inputs())
    loss.backward()
    print(f"{float(loss):.6g}")


if __name__ == "__main__":
    main()
