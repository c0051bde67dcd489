"""Two pointwise operations and their sum: one kernel with Inductor, three launches without it.

dynadiag explain samples/fused_ops.py
"""

from __future__ import annotations

import hashlib

import torch
from torch._inductor import metrics
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class CountOps(TorchDispatchMode):
    """Counts what eager mode dispatches: one launch each for pointwise ops."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.count += 1
        return func(*args, **(kwargs or {}))


def mix(x: torch.Tensor) -> torch.Tensor:
    return x.relu() + x.sigmoid()


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 64, device=DEVICE)
    with CountOps() as eager:
        expected = mix(x)
    result = torch.compile(mix)(x)
    torch.testing.assert_close(result, expected)
    print(f"eager: {eager.count} launches; compiled: {metrics.generated_kernel_count} kernel")
    print("result", hashlib.sha256(result.cpu().numpy().tobytes()).hexdigest()[:16])


if __name__ == "__main__":
    main()
