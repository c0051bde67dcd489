"""threads of 2025: an autograd function keeps a number that was taken from a tensor."""
import torch


class Quantize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bits):
        scale = x.abs().max().item() / (2 ** (bits - 1) - 1)
        ctx.scale = scale
        return (x / scale).round() * scale

    @staticmethod
    def backward(ctx, g):
        return g, None


@torch.compile(backend="eager")
def layer(x, bits):
    return Quantize.apply(x.tanh(), bits).sum()


for bits in (8, 4):
    layer(torch.randn(5, requires_grad=True), bits).backward()
