"""pytorch/pytorch#154707 (2025): the same function is compiled by two calls of torch.compile with other backends."""
import torch


def f(x):
    return x.sin() + 1


x = torch.randn(4)
torch.compile(f, backend="eager")(x)
torch.compile(f, backend="aot_eager")(x)
