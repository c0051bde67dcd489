import torch
from torch import nn
from torch.export import Dim, export


class Vocoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv1d(8, 8, 3, padding=1)

    def forward(self, tokens, durations):
        length = int(durations.sum())
        frames = torch.ones(1, 8, length) * tokens.mean()
        return self.convolution(frames)


count = Dim("count", min=2, max=200)
export(
    Vocoder(),
    (torch.randn(1, 8, 5), torch.tensor([2, 3, 1, 2, 2])),
    dynamic_shapes={"tokens": {2: count}, "durations": {0: count}},
)
