"""pytorch/pytorch#167504 (2025): a wrapper is compiled in a loop with another inner network each time."""
import torch


class Pair(torch.nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x):
        return self.second(self.first(x))


kinds = [torch.nn.ReLU, torch.nn.GELU, torch.nn.Tanh, torch.nn.SiLU, torch.nn.ELU, torch.nn.Sigmoid, torch.nn.Mish, torch.nn.Softplus, torch.nn.CELU, torch.nn.SELU]
for kind in kinds:
    net = torch.compile(Pair(kind(), torch.nn.Linear(4, 4)), backend="eager", fullgraph=True)
    net(torch.randn(2, 4))
