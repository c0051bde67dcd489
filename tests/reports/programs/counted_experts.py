import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(16, 2)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))

    def forward(self, x):
        picked = self.gate(x).argmax(-1)
        counts = torch.bincount(picked, minlength=2).tolist()
        parts = torch.split(x[picked.argsort()], counts)
        return torch.cat([expert(part) for expert, part in zip(self.experts, parts)])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(16, 16)
        self.experts = Experts()
        self.out = nn.Linear(16, 4)

    def forward(self, x):
        x = self.inp(x).relu()
        x = checkpoint(self.experts, x, use_reentrant=False)
        return self.out(x)


model = torch.compile(Model(), backend="eager")
for _ in range(3):
    model(torch.randn(8, 16)).sum().backward()
