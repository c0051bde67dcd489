"""threads of 2026: augmentation with NumPy's random numbers in forward."""
import numpy as np
import torch


@torch.compile(backend="eager")
def augment(x):
    x = x * 2
    if np.random.rand() > 0.5:
        x = x.flip(0)
    return x + 1


np.random.seed(0)
for _ in range(3):
    augment(torch.randn(4))
