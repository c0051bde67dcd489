"""threads of 2025: training and validation batches differ in size and grad mode."""
import torch

net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
compiled = torch.compile(net, backend="eager")
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    net.train()
    for n in (8, 8, 5):
        compiled(torch.randn(n, 4)).sum().backward()
        opt.step()
        opt.zero_grad()
    net.eval()
    with torch.no_grad():
        compiled(torch.randn(16, 4))
