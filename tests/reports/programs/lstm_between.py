import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(16, 16)
        self.lstm = nn.LSTM(16, 32, 2, batch_first=True)
        self.out = nn.Linear(32, 4)

    def forward(self, x):
        x = torch.relu(self.inp(x))
        x, _ = self.lstm(x)
        return torch.softmax(self.out(x), -1)


model = torch.compile(Tagger(), backend="eager")
for _ in range(3):
    model(torch.randn(2, 6, 16))
