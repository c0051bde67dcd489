"""threads of 2025: a module-level number is changed between calls."""
import torch

TEMPERATURE = 1.0


@torch.compile(backend="eager")
def sample(logits):
    return (logits / TEMPERATURE).softmax(-1)


for step in range(3):
    TEMPERATURE = 1.0 + step
    sample(torch.randn(4))
