"""pytorch/pytorch#110803 and threads of 2025: train() and eval() in turn."""
import torch

net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 4))
compiled = torch.compile(net, backend="eager")
for epoch in range(3):
    compiled.train()
    compiled(torch.randn(3, 4)).sum().backward()
    compiled.eval()
    with torch.no_grad():
        compiled(torch.randn(3, 4))
