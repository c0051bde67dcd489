"""A branch on the value of a tensor: why it breaks the graph, and two ways to write it without a break.

The branch of `scale_if_positive` depends on the value of a tensor, which exists only when the program runs. So Dynamo
ends the graph at the `if` (it does not trace into it, as is often said). `torch.where` computes both branches and picks
one; `torch.cond` keeps both branches in the graph and runs one.

    dynadiag explain samples/control_flow.py
"""

from __future__ import annotations

import hashlib

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def scale_if_positive(x: torch.Tensor) -> torch.Tensor:
    x = torch.relu(x)
    if x.sum() > 0:
        x = x * 2
    return x


def scale_with_where(x: torch.Tensor) -> torch.Tensor:
    x = torch.relu(x)
    return torch.where(x.sum() > 0, x * 2, x)


def scale_with_cond(x: torch.Tensor) -> torch.Tensor:
    x = torch.relu(x)
    return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x.clone(), (x,))


def main() -> None:
    torch.manual_seed(0)
    positive, negative = torch.randn(4, 8, device=DEVICE), -torch.rand(4, 8, device=DEVICE)
    hashed = hashlib.sha256()
    for fn in (scale_if_positive, scale_with_where, scale_with_cond):
        compiled = torch.compile(fn, backend="eager")
        for x in (positive, negative):
            result = compiled(x)
            assert torch.equal(result, scale_if_positive(x))
            hashed.update(result.cpu().numpy().tobytes())
    print("all three agree on both branches")
    print("result", hashed.hexdigest()[:16])


if __name__ == "__main__":
    main()
