"""threads of 2025: a cache of past keys grows with each token."""
import torch


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(8, 24)

    def forward(self, x, past):
        q, k, v = self.qkv(x).chunk(3, -1)
        if past is not None:
            k, v = torch.cat([past[0], k], 1), torch.cat([past[1], v], 1)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v), (k, v)


attention = torch.compile(Attention(), backend="eager")
past = None
with torch.no_grad():
    for _ in range(5):
        out, past = attention(torch.randn(1, 1, 8), past)
