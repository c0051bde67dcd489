"""threads of 2025 and 2026 on graph libraries: the branch on data is in an installed package."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "site-packages"))
import edgelib
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = torch.nn.Linear(4, 8)
        self.pool = edgelib.EdgePool(8)
        self.decode = torch.nn.Linear(8, 2)

    def forward(self, x):
        x = self.encode(x).relu()
        x = self.pool(x)
        return self.decode(x)


torch.manual_seed(0)
net = torch.compile(Net(), backend="eager")
net(torch.randn(6, 4))
