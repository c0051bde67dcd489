"""pytorch#133898: AdamW with OneCycleLR in one compiled step; the scheduler writes betas too."""
import torch

param = torch.rand(2, 3, requires_grad=True)
param.grad = torch.rand_like(param)
opt = torch.optim.AdamW([param], lr=torch.tensor(0.001))
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.01, total_steps=20)


@torch.compile(backend="eager")
def step():
    opt.step()


for _ in range(6):
    step()
    sched.step()
