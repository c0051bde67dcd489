import torch
class Guard:
    def __enter__(self): return self
    def __exit__(self, *a): return False
class Router(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.lin = torch.nn.Linear(8, 8)
    def forward(self, x, trace):
        if trace:
            with Guard():
                torch._dynamo.graph_break()
                x = x + 1
        return self.lin(x).relu()
net = torch.compile(Router(), backend="eager")
x = torch.randn(2, 8)
net(x, True)
for step in range(4):
    net(x, False)
