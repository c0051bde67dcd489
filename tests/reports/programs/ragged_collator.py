import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(50, 8)
        self.out = nn.Linear(8, 3)

    def forward(self, ids, mask):
        h = self.emb(ids) * mask.unsqueeze(-1)
        return self.out(h)


def collate(samples):
    ids = pad_sequence(samples, batch_first=True)
    mask = (ids != 0).float()
    return ids, mask


data = [torch.randint(1, 50, (n,)) for n in (5, 5, 7, 6, 9, 8, 4, 3)]
loader = DataLoader(data, batch_size=2, collate_fn=collate)
model = torch.compile(Tagger(), backend="eager")
for epoch in range(2):
    for ids, mask in loader:
        model(ids, mask)
