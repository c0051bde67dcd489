"""A Triton kernel that only multiplies and adds in registers."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]  # Triton has no types
def fma_chains(out, steps: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]  # Triton reads annotations
    """Four chains of ``steps`` multiply-adds for each of ``block`` elements: four hide the latency of each other."""
    place = tl.program_id(0) * block + tl.arange(0, block)
    a = place * 1e-9
    b = a + 0.25
    c = a + 0.5
    d = a + 0.75
    for _ in range(steps):
        a = a * 0.999 + 0.001
        b = b * 0.998 + 0.002
        c = c * 0.997 + 0.003
        d = d * 0.996 + 0.004
    tl.store(out + place, a + b + c + d)
