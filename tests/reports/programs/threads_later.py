import torch

import dynadiag


@torch.compile(backend="eager")
def silu_and_mul(x):
    half = x.shape[-1] // 2
    return torch.nn.functional.silu(x[..., :half]) * x[..., half:]


@torch.compile(backend="eager")
def top(x):
    return torch.topk(x.softmax(-1), 2).values


torch.set_num_threads(2)
for _ in range(2):
    top(silu_and_mul(torch.randn(4, 16)))
dynadiag.warm()
torch.set_num_threads(1)
for _ in range(3):
    top(silu_and_mul(torch.randn(4, 16)))
