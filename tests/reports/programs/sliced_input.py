"""pytorch#129798: the input is a view of a wider buffer in some calls."""
import torch


@torch.compile(backend="eager")
def fn(x):
    return x.sin() * 2


for i in range(4, 9):
    wide = torch.randn(6, i + 1)
    fn(wide[:, :i])
    fn(torch.randn(6, i))
