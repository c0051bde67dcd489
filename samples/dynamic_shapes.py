"""Sequences of many lengths, compiled in four ways: how often each way compiles, and what stops the recompiles.

With `dynamic=None`, the default, torch compiles for the first length, then once more for any length. `dynamic=False`
compiles for each length until torch's recompile limit is reached; the rest runs uncompiled. `dynamic=True` and
`mark_dynamic` compile once.

    dynadiag explain samples/dynamic_shapes.py
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LENGTHS = (5, 8, 13, 21, 34, 55, 89, 144, 233, 377)
FEATURES = 16


class Pool(nn.Module):
    """Attention over a sequence with one learnt query: (batch, length, FEATURES) -> (batch, FEATURES)."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(FEATURES, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = self.score(x).softmax(dim=1)
        return (weights * x).sum(dim=1)


def by_itself(x: torch.Tensor, net: Pool) -> torch.Tensor:
    return net(x)


def static(x: torch.Tensor, net: Pool) -> torch.Tensor:
    return net(x)


def dynamic(x: torch.Tensor, net: Pool) -> torch.Tensor:
    return net(x)


def marked(x: torch.Tensor, net: Pool) -> torch.Tensor:
    return net(x)


def main() -> None:
    torch.manual_seed(0)
    net = Pool().to(DEVICE)
    inputs = [torch.randn(2, length, FEATURES, device=DEVICE) for length in LENGTHS]
    ways: list[tuple[Callable[[torch.Tensor, Pool], torch.Tensor], bool | None]] = [
        (by_itself, None),
        (static, False),
        (dynamic, True),
        (marked, None),
    ]
    hashed = hashlib.sha256()
    for fn, setting in ways:
        graphs = 0

        def count(gm: torch.fx.GraphModule, _inputs: object) -> Callable[..., object]:
            nonlocal graphs
            graphs += 1
            return gm.forward

        compiled = torch.compile(fn, backend=count, dynamic=setting)
        for sequence in inputs:
            x = sequence.clone()
            if fn is marked:
                torch._dynamo.mark_dynamic(x, 1)
            result = compiled(x, net)
            assert torch.equal(result, net(sequence))
            hashed.update(result.detach().cpu().numpy().tobytes())
        print(f"{fn.__name__}: {graphs} graphs for {len(LENGTHS)} lengths")
    print("result", hashed.hexdigest()[:16])


if __name__ == "__main__":
    main()
