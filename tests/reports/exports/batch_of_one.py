import torch
from torch import nn
from torch.export import Dim, export

model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 6 * 6, 2)).eval()
batch = Dim("batch", min=1, max=64)
export(model, (torch.randn(1, 3, 8, 8),), dynamic_shapes={"input": {0: batch}})
