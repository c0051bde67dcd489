"""PrimeIntellect-ai/prime-rl#996 (2025): the tokens of each expert are read as numbers."""
import torch


class Experts(torch.nn.Module):
    def __init__(self, count=4, width=8):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(count, width, width))

    def forward(self, x, tokens_per_expert):
        counts = tokens_per_expert.tolist()
        parts = torch.split(x, counts)
        return torch.cat([part @ self.w[i] for i, part in enumerate(parts)])


experts = torch.compile(Experts(), backend="eager")
experts(torch.randn(10, 8), torch.tensor([1, 2, 3, 4]))
experts(torch.randn(10, 8), torch.tensor([4, 3, 2, 1]))
