import torch
from torch import nn
from torch.export import Dim, export


class Embeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(30, 8)
        self.positions = nn.Embedding(16, 8)
        self.register_buffer("position_ids", torch.arange(16).unsqueeze(0))

    def forward(self, input_ids, attention_mask):
        embedded = self.words(input_ids) + self.positions(self.position_ids)
        return embedded * attention_mask.unsqueeze(-1)


batch = Dim("batch", min=2, max=10)
length = Dim("length", max=512)
export(
    Embeddings(),
    (torch.randint(0, 30, (2, 16)), torch.ones(2, 16)),
    dynamic_shapes={"input_ids": {0: batch, 1: length}, "attention_mask": {0: batch, 1: length}},
)
