"""What compiled code assumes about its inputs, and what happens when an assumption no longer holds.

One function, called with float32, then bfloat16, then another length, then a third length. The change of dtype and the
first change of length each cost a recompile. The second change of length costs none, because torch has made the length
symbolic.

    dynadiag explain samples/guards.py
"""

from __future__ import annotations

import hashlib

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def normalize(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean()) / (x.std() + 1e-5)


def main() -> None:
    torch.manual_seed(0)
    compiled = torch.compile(normalize, backend="eager")
    calls = [(8, torch.float32), (8, torch.bfloat16), (12, torch.float32), (20, torch.float32)]
    hashed = hashlib.sha256()
    for length, dtype in calls:
        x = torch.randn(length, dtype=dtype, device=DEVICE)
        result = compiled(x)
        assert torch.equal(result, normalize(x))
        hashed.update(result.float().cpu().numpy().tobytes())
        print(f"{length} values of {dtype}: as without compiling")
    print("result", hashed.hexdigest()[:16])


if __name__ == "__main__":
    main()
