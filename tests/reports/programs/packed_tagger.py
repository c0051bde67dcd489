import torch
class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.emb = torch.nn.Embedding(16, 8); self.gru = torch.nn.GRU(8, 8, batch_first=True); self.out = torch.nn.Linear(8, 3)
    def forward(self, ids, lengths):
        x = self.emb(ids)
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, _ = self.gru(packed)
        y, _ = torch.nn.utils.rnn.pad_packed_sequence(y, batch_first=True)
        return self.out(y)
net = torch.compile(Tagger(), backend="eager")
net(torch.randint(16, (2, 5)), torch.tensor([5, 3]))
