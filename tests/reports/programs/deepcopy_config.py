"""threads of 2026: a config is copied in forward."""
import copy
import torch


class Config:
    def __init__(self):
        self.scale = 2.0


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.config = Config()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        x = self.linear(x)
        config = copy.deepcopy(self.config)
        return x * config.scale


torch.compile(Net(), backend="eager")(torch.randn(2, 4))
