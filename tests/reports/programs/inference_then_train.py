"""threads of 2025: the model is warmed up under inference_mode, and then trained."""
import torch

net = torch.nn.Linear(4, 4)
compiled = torch.compile(net, backend="eager")
with torch.inference_mode():
    compiled(torch.randn(2, 4))
compiled(torch.randn(2, 4)).sum().backward()
