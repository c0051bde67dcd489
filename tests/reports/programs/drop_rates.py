"""threads of 2025 (timm): the drop rate of each block differs, blocks are compiled one by one."""
import torch


class DropPath(torch.nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        if self.p == 0.0 or not self.training:
            return x
        keep = 1 - self.p
        return x * x.new_empty(x.shape[0], 1).bernoulli_(keep) / keep


class Block(torch.nn.Module):
    def __init__(self, p):
        super().__init__()
        self.lin, self.drop = torch.nn.Linear(4, 4), DropPath(p)

    def forward(self, x):
        return x + self.drop(self.lin(x))


blocks = torch.nn.ModuleList(Block(0.1 * i) for i in range(5))
for b in blocks:
    b.compile(backend="eager")
x = torch.randn(3, 4)
for b in blocks:
    x = b(x)
