import torch
from torch import nn

import dynadiag


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.time = nn.Linear(8, 8), nn.Linear(1, 8)

    def forward(self, x, timestep):
        t = self.time(timestep[..., None])
        if timestep.dim() == 1:
            t = t[:, None]
        return self.fc(x) * t


model = torch.compile(Transformer().eval(), backend="eager")
with torch.no_grad():
    for _ in range(2):
        model(torch.randn(2, 6, 8), torch.rand(2))
    dynadiag.warm()
    for _ in range(3):
        model(torch.randn(2, 6, 8), torch.rand(2, 6))
