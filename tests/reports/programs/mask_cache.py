"""threads of 2025: a module keeps a mask for the longest length seen, and makes it anew when a longer one comes."""
import torch


class Causal(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.ones(4, 4).tril(), persistent=False)

    def forward(self, scores):
        n = scores.shape[-1]
        if n > self.mask.shape[0]:
            self.mask = torch.ones(n, n).tril()
        return scores.masked_fill(self.mask[:n, :n] == 0, float("-inf")).softmax(-1)


causal = torch.compile(Causal(), backend="eager")
for n in (4, 6, 9, 12):
    causal(torch.randn(2, n, n))
