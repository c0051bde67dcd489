import torch
class Adapter(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.scale = 0.0; self.down = torch.nn.Linear(8, 2); self.up = torch.nn.Linear(2, 8)
    def forward(self, x):
        if self.scale == 0.0:
            return x
        return x + self.up(self.down(x)) * self.scale
adapter = Adapter()
run = torch.compile(adapter, backend="eager")
x = torch.randn(2, 8)
run(x)
adapter.scale = 0.5
for _ in range(5): run(x)
