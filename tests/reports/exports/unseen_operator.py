import torch
from torch import nn


@torch.library.custom_op("reports::scale", mutates_args=())
def scale(x: torch.Tensor) -> torch.Tensor:
    return x * 2


class Model(nn.Module):
    def forward(self, x):
        y = x.relu()
        return scale(y) + 1


torch.export.export(Model(), (torch.randn(3),))
