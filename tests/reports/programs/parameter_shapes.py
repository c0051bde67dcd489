"""microsoft/dion#23 (2026): a helper of an optimizer is compiled once and called with each parameter."""
import torch


@torch.compile(backend="eager", dynamic=True)
def orthogonalize(weight):
    return weight / (weight.norm() + 1e-7)


model = torch.nn.ModuleList([torch.nn.Linear(4 + i, 4, bias=False) for i in range(10)])
with torch.no_grad():
    for layer in model:
        orthogonalize(layer.weight)
