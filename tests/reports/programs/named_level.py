import torch
from torch import nn


class Unet(nn.Module):
    def __init__(self):
        super().__init__()
        for i in range(4):
            setattr(self, f"conv{i}", nn.Linear(4, 4))

    def forward(self, x, level):
        layer = getattr(self, f"conv{level}")
        return layer(x)


m = torch.compile(Unet(), backend="eager")
for level in range(4):
    m(torch.randn(2, 4), level)
