"""threads of 2025 (transformers): keyword arguments are there in some calls only."""
import torch


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(8, 8)

    def forward(self, x, **kwargs):
        h = self.lin(x)
        mask = kwargs.get("attention_mask")
        if mask is not None:
            h = h * mask
        return h


block = torch.compile(Block(), backend="eager")
x = torch.randn(2, 8)
block(x)
block(x, attention_mask=torch.ones(2, 1))
block(x, attention_mask=torch.ones(2, 1), use_cache=True)
block(x, use_cache=True)
