"""pytorch/pytorch#163329 (2025): blocks are compiled one by one, and each has a processor object of its own."""
import torch


class Processor:
    def __init__(self, scale):
        self.scale = scale

    def __call__(self, module, x):
        return module.proj(x) * self.scale


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = torch.nn.Linear(8, 8)
        self.processor = Processor(0.5)
        self.table = {"key": self.processor}

    def forward(self, x):
        return x + self.table["key"](self, x)


blocks = torch.nn.ModuleList([Block() for _ in range(4)])
for i, block in enumerate(blocks):
    block.processor.scale = 0.5 * (i + 1)
    block.compile(backend="eager")
x = torch.randn(2, 8)
for block in blocks:
    x = block(x)
