import torch
from torch import nn

policy = nn.Linear(8, 8)


@torch.compile(backend="eager")
def denoise(x, steps):
    dt = torch.tensor(-1.0 / steps)
    time = torch.tensor(1.0)
    while time >= -dt / 2:
        x = x + dt * policy(x) * time
        time = time + dt
    return x


denoise(torch.randn(3, 8), 4)
