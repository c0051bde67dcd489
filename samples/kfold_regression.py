"""A three-layer regression, trained and evaluated over five folds, all of it under one `torch.compile`.

Ten features, Adam, mean squared error, and 103 rows, so that the sizes of the folds differ by one. Dynamo leaves the
function as a whole to Python, because its loop cannot be in a graph. What it calls is compiled: the net, forward and
backward, and Adam's update of each parameter. A fold of another size costs a recompile, after which the number of rows
is symbolic; the new optimizer of each fold costs more recompiles. The losses equal those of the uncompiled run.

    dynadiag explain samples/kfold_regression.py
"""

from __future__ import annotations

import hashlib
import struct

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the name that everybody gives it

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROWS, FEATURES, FOLDS, STEPS = 103, 10, 5, 8


class Regression(nn.Module):
    """Layers of 64, 32 and 1: (rows, FEATURES) -> (rows, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, 64)
        self.second = nn.Linear(64, 32)
        self.last = nn.Linear(32, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.second(torch.relu(self.first(x)))))


def train_and_evaluate(
    net: nn.Module, optimizer: torch.optim.Optimizer, train: list[torch.Tensor], test: list[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Train for STEPS full batches. Return the mean squared error and R2 on the test split."""
    net.train()
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.mse_loss(net(train[0]), train[1])
        loss.backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        mse = F.mse_loss(net(test[0]), test[1])
    return mse, 1 - mse / test[1].var(correction=0)


def make_rows() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(ROWS, FEATURES, generator=generator)
    y = x[:, :1] * 2 - x[:, 1:2] + 0.1 * torch.randn(ROWS, 1, generator=generator)
    return x.to(DEVICE), y.to(DEVICE)


def cross_validate(train_fold=train_and_evaluate) -> list[tuple[float, float]]:  # type: ignore[no-untyped-def]
    """Return (mean squared error, R2) of each fold, with a new net for each."""
    x, y = make_rows()
    scores = []
    for held_out in torch.arange(ROWS).tensor_split(FOLDS):
        kept = torch.ones(ROWS, dtype=torch.bool)
        kept[held_out] = False
        torch.manual_seed(0)
        net = Regression().to(DEVICE)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
        mse, r2 = train_fold(net, optimizer, [x[kept], y[kept]], [x[~kept], y[~kept]])
        scores.append((mse.item(), r2.item()))
    return scores


def main() -> None:
    eager = cross_validate()
    compiled = cross_validate(torch.compile(train_and_evaluate, backend="aot_eager"))
    for fold, (mse, r2) in enumerate(compiled):
        print(f"fold {fold}: MSE {mse:.4f}, R2 {r2:.4f}")
    torch.testing.assert_close(torch.tensor(compiled), torch.tensor(eager), rtol=1e-4, atol=1e-5)
    print("losses as without compiling")
    print("result", hashlib.sha256(b"".join(struct.pack("dd", *pair) for pair in compiled)).hexdigest()[:16])


if __name__ == "__main__":
    main()
