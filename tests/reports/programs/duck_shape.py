"""diffusers#14297, 2026: height * width equals the number of channels in the first call."""
import torch


class Denoiser(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.img_in = torch.nn.Linear(16, 32)
        self.out = torch.nn.Linear(32, 16)

    def forward(self, hidden_states):
        return self.out(torch.relu(self.img_in(hidden_states)))


net = torch.compile(Denoiser(), dynamic=True, backend="eager")
with torch.no_grad():
    for side in (4, 6, 8):
        net(torch.randn(2, side * side, 16))
