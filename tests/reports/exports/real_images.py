import torch
from torch import nn


class Vision(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, pixels, mask):
        real = pixels[(pixels != 0).any(dim=(1, 2))]
        mask = mask[(pixels != 0).any(dim=(1, 2))]
        n, seq, _ = real.shape
        q = self.q(real).view(n, seq, 4, 8).transpose(1, 2)
        k = self.k(real).view(n, seq, 4, 8).transpose(1, 2)
        v = self.v(real).view(n, seq, 4, 8).transpose(1, 2)
        out = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
        return out.transpose(1, 2).reshape(n, seq, 32)


pixels = torch.randn(3, 8, 32)
pixels[2] = 0
torch.export.export(Vision().eval(), (pixels, torch.ones(3, 8, dtype=torch.bool)))
