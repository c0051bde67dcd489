import torch
from torch import nn


class Speech(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 4, batch_first=True, bidirectional=True)

    def forward(self, x, lengths, mask):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, _ = self.lstm(packed)
        out, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
        return out.masked_fill(mask[..., None], 0.0)


t = torch.export.Dim("t", min=2, max=64)
args = (torch.randn(2, 12, 8), torch.tensor([12, 7]), torch.zeros(2, 12, dtype=torch.bool))
torch.export.export(Speech(), args, dynamic_shapes=({1: t}, None, {1: t}))
