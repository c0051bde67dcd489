"""What the logs here are of: breaks, recompiles, a backward, a frame without an operation, an exception."""

from __future__ import annotations

import contextlib
from typing import Any

import torch


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.fc(x))


def stop(x: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    return x.cos()


@torch.compile(backend="eager")
def split(x: torch.Tensor, scale: float) -> torch.Tensor:
    y = stop(x.sin())
    if y.sum() > 0:
        y = y * scale
    return y


@torch.compile(backend="eager")
def chosen(x: torch.Tensor, mode: str, bias: torch.Tensor | None = None) -> torch.Tensor:
    y = x.sin() if mode == "sin" else x.cos()
    return y if bias is None else y + bias


@torch.compile(backend="eager")
def untouched(x: torch.Tensor) -> torch.Tensor:
    return x


@torch.compile(backend="eager", fullgraph=True)
def whole(x: torch.Tensor) -> Any:
    torch._dynamo.graph_break()
    return x * 2


torch.manual_seed(0)
torch.compile(Net())(torch.ones(2, 4)).sum().backward()
split(torch.ones(3), 2.0)
chosen(torch.ones(3), "sin")
chosen(torch.ones(4), "sin")
chosen(torch.ones(4), "cos")
chosen(torch.ones(4), "cos", torch.ones(4))
chosen(torch.ones(4, dtype=torch.float64), "cos")
untouched(torch.ones(3))
with contextlib.suppress(RuntimeError):
    whole(torch.ones(3))
