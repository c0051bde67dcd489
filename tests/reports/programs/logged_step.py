import torch
from torch import nn

model = nn.Linear(4, 1)


@torch.compile(backend="eager")
def train_step(x, step):
    loss = model(x).pow(2).mean()
    if step % 100 == 0:
        print(f"step {step} loss {loss.item():.3f}")
    return loss


for step in range(5):
    train_step(torch.randn(8, 4), step)
