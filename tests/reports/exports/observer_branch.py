import torch
from torch import nn


class Observer(nn.Module):
    def forward(self, x):
        low, high = torch.aminmax(x)
        if low == high:
            return x
        return (x - low) / (high - low)


torch.export.export(Observer(), (torch.randn(4, 8),), strict=False)
