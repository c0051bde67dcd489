import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return self.drop(self.lin(x))


net = Net()
fast = torch.compile(net, backend="eager")
for epoch in range(4):
    net.drop.p = 0.1 + 0.1 * epoch
    fast(torch.randn(2, 4))
