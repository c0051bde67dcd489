"""threads of 2025: a list of losses grows with each call."""
import torch


@torch.compile(backend="eager")
def mean_of(history, new):
    history.append(new.mean())
    return torch.stack(history).mean()


history = []
for _ in range(4):
    mean_of(history, torch.randn(3))
