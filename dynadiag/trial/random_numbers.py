"""The generators of random numbers that a program may draw from."""

from __future__ import annotations

import random
import sys


def seed_generators(seed: int | None = None) -> None:
    """Seed those of Python, torch and NumPy. Without a seed each process gets its own numbers."""
    import torch  # a server of forks is loaded before torch is

    random.seed(seed)
    if seed is None:
        torch.seed()
    else:
        torch.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
