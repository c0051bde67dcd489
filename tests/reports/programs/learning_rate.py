"""threads of 2025: the learning rate is a float that a scheduler rebinds; the step is compiled."""
import torch

net = torch.nn.Linear(4, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)


@torch.compile(backend="eager")
def step():
    opt.step()


for _ in range(5):
    net(torch.randn(2, 4)).sum().backward()
    step()
    sched.step()
