"""threads of 2026: dynamic=True, and a number that is a loop's count."""
import torch


@torch.compile(backend="eager", dynamic=True)
def diffuse(x, steps):
    for i in range(steps):
        x = x + x.sin() / (i + 1)
    return x


for steps in (2, 3, 4):
    diffuse(torch.randn(5), steps)
