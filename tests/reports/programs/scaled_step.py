import torch
from torch import nn

model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")


@torch.compile(backend="eager")
def train_step(x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = (model(x) - y).pow(2).mean()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    opt.zero_grad()
    return loss


for _ in range(3):
    train_step(torch.randn(8, 4), torch.randn(8, 1))
