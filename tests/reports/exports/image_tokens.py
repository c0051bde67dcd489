import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 16)

    def forward(self, input_ids, features):
        embeds = self.embed(input_ids)
        mask = (input_ids == 99).unsqueeze(-1).expand_as(embeds)
        if embeds[mask].numel() != features.numel():
            raise ValueError("image features and image tokens do not match")
        return embeds.masked_scatter(mask, features.to(embeds.dtype))


ids = torch.tensor([[1, 99, 99, 99, 5, 6]])
torch.export.export(Model(), (ids, torch.randn(3, 16)))
