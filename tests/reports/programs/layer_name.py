"""pytorch/pytorch#128071 (2025): layers carry their index, and a break makes each layer a frame of its own."""
import torch


class Layer(torch.nn.Module):
    def __init__(self, index):
        super().__init__()
        self.index = index
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x, cache):
        torch._dynamo.graph_break()
        cache[self.index] = x
        return self.linear(x)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer(i) for i in range(4)])

    def forward(self, x):
        cache = {}
        for layer in self.layers:
            x = layer(x, cache)
        return x


net = torch.compile(Net(), backend="eager")
net(torch.randn(2, 4))
