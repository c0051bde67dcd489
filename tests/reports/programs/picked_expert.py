"""threads of 2025: the expert is picked by a Python number."""
import torch


class Moe(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(4))

    def forward(self, x, which):
        return self.experts[which](x)


moe = torch.compile(Moe(), backend="eager")
for which in (0, 1, 2, 3):
    moe(torch.randn(2, 4), which)
