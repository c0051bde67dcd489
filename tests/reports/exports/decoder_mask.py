import torch
from torch import nn
from torch.export import Dim, export


class Decoder(nn.Module):
    def forward(self, hidden, mask):
        if mask.all():
            return hidden.softmax(-1)
        return hidden.masked_fill(~mask, -1e9).softmax(-1)


n = Dim("n")
export(
    Decoder(),
    (torch.randn(2, 6), torch.ones(2, 6, dtype=torch.bool)),
    dynamic_shapes={"hidden": {1: n}, "mask": {1: n}},
    strict=True,
)
