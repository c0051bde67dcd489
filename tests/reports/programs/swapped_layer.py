"""pytorch/pytorch#153442 (2025): a mode, a layer and an attribute are replaced between calls."""
import torch


class Foo(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(4, 4)
        self.attr = torch.randn(4)
        self.mode = "a"

    def forward(self, x, y):
        if self.mode == "a":
            return self.lin(x * 2) + self.attr + y
        return self.lin(x / 2) - self.attr - y


m = Foo()
fn = torch.compile(m, backend="eager")
fn(torch.randn(7, 4), torch.randn(4))
m.mode = "b"
fn(torch.randn(7, 4), torch.randn(4))
m.lin = torch.nn.Linear(8, 5)
m.attr = torch.randn(5)
fn(torch.randn(9, 8), torch.randn(5))
