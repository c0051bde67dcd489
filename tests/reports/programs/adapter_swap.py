"""diffusers#9453 and #9279, 2025: the scale of an adapter stands in a dict of the layer."""
import torch


class LoraLinear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.base = torch.nn.Linear(8, 8)
        self.down, self.up = torch.nn.Linear(8, 2, bias=False), torch.nn.Linear(2, 8, bias=False)
        self.scaling = {"default": 0.5}

    def forward(self, x):
        return self.base(x) + self.up(self.down(x)) * self.scaling["default"]


layer = LoraLinear()
net = torch.compile(layer, backend="eager")
for scale in (0.5, 1.0, 2.0):
    layer.scaling["default"] = scale
    net(torch.randn(4, 8))
layer.down = torch.nn.Linear(8, 4, bias=False)
layer.up = torch.nn.Linear(4, 8, bias=False)
net(torch.randn(4, 8))
