"""pytorch/pytorch#99091's kind, threads of 2025: a Python counter is an argument."""
import torch


class Schedule(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.step = 0

    @torch.compile(backend="eager", dynamic=False)
    def forward(self, x):
        self.step += 1
        return x * (self.step / 10)


s = Schedule()
for _ in range(4):
    s(torch.ones(3))
