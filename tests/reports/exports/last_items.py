import torch
from torch import nn
from torch.export import Dim, export


class Select(nn.Module):
    def forward(self, items, last_n):
        count = torch.minimum(last_n, torch.tensor(200)).max().item()
        chosen = items[:, :count]
        return chosen.view(items.shape[0], count * 4)


users, length = Dim("users"), Dim("length")
export(
    Select(),
    (torch.randn(2, 10, 4), torch.tensor([3, 7])),
    dynamic_shapes={"items": {0: users, 1: length}, "last_n": {0: users}},
)
