import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(20, 8)

    def forward(self, ids, positions, max_len):
        h = self.emb(ids)
        mask = torch.arange(max_len)[None] < positions[:, None]
        return (h * mask[..., None]).sum(1)


def batches():
    for length in (8, 16, 8, 32, 16):
        ids = torch.randint(0, 20, (4, length))
        yield ids, torch.randint(1, length, (4,)), length


net = torch.compile(Net(), backend="eager")
for ids, positions, max_len in batches():
    net(ids, positions, max_len)
