"""A small language model with a mixture of 8 experts, of which each token takes 2: a training step of 4 x 512 tokens.

python train_mixture.py [--backend inductor] [--times]
"""

import argparse
import time

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import nn

WIDTH, EXPERTS, CHOSEN, LAYERS = 256, 8, 2, 4


class Experts(nn.Module):
    """Each expert has a gate, an up and a down projection."""

    def __init__(self):
        super().__init__()
        self.up = nn.Parameter(torch.randn(EXPERTS, 4 * WIDTH, WIDTH) * 0.02)
        self.down = nn.Parameter(torch.randn(EXPERTS, WIDTH, 2 * WIDTH) * 0.02)

    def forward(self, hidden, indices, weights):
        mixed = torch.zeros_like(hidden)
        mask = F.one_hot(indices, num_classes=EXPERTS).permute(2, 1, 0)
        hit = torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()
        for expert in hit:
            expert = expert[0]
            choice, token = torch.where(mask[expert])
            gate, up = F.linear(hidden[token], self.up[expert]).chunk(2, dim=-1)
            out = F.linear(F.silu(gate) * up, self.down[expert])
            out = out * weights[token, choice, None]
            mixed.index_add_(0, token, out.to(hidden.dtype))
        return mixed


class Block(nn.Module):
    """A router and its experts."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = Experts()

    def forward(self, x):
        hidden = self.norm(x).reshape(-1, WIDTH)
        weights, indices = torch.topk(F.softmax(self.router(hidden), dim=-1), CHOSEN, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        return x + self.experts(hidden, indices, weights).reshape(x.shape)


class Model(nn.Module):
    """Some blocks and a head."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(1000, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 1000)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


parser = argparse.ArgumentParser()
parser.add_argument("--backend", default="inductor")
parser.add_argument("--times", action="store_true")
args = parser.parse_args()
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
model = Model().to(device)
compiled = torch.compile(model, backend=args.backend)
ids = torch.randint(0, 1000, (4, 512), device=device)


def step():
    """One step, and its loss."""
    model.zero_grad()
    loss = F.cross_entropy(compiled(ids).flatten(0, 1), ids.flatten())
    loss.backward()
    return loss


for number in range(2):
    print(f"step {number}: loss {step().item():.4f}")
if args.times:
    for _ in range(10):
        step()
    begin = time.perf_counter()
    for _ in range(30):
        loss = step()
    loss.item()
    print(f"a step {(time.perf_counter() - begin) / 30 * 1000:.2f} ms")
