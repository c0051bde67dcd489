"""threads of 2025: training under autocast, evaluation without, on a wrapper with hooks."""
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(8, 8), torch.nn.Linear(8, 2)
        self.kept = []
        self.a.register_forward_hook(lambda m, i, o: self.kept.append(o.detach()))

    def forward(self, x):
        return self.b(self.a(x).relu())


net = Net()
compiled = torch.compile(net, backend="eager")
for _ in range(2):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        compiled(torch.randn(4, 8)).sum().backward()
compiled(torch.randn(4, 8))
