import torch
from torch import nn
from torch.export import Dim, export


class Windows(nn.Module):
    def forward(self, x):
        batch, height, width, channels = x.shape
        x = x.view(batch, height // 4, 4, width // 4, 4, channels)
        return x.permute(0, 1, 3, 2, 4, 5).flatten(3)


height = Dim("height", min=8, max=256)
export(Windows(), (torch.randn(1, 16, 16, 3),), dynamic_shapes={"x": {1: height}})
