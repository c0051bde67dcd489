"""pytorch/pytorch#136002, #151356 (2025): mark_dynamic fails, and the message does not say which line made it constant."""
import torch


def check(n):
    return n == 5


@torch.compile(backend="eager")
def f(x):
    y = x + 1
    if check(x.size(0)):
        return y * 2
    return y


x = torch.randn(5)
torch._dynamo.mark_dynamic(x, 0)
f(x)
