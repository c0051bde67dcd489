import torch
from tqdm import tqdm


@torch.compile(backend="eager")
def sample(x, steps):
    for t in tqdm(range(steps), disable=True):
        x = x - 0.1 * x.sin() * t
    return x


sample(torch.randn(4), 3)
sample(torch.randn(4), 4)
