"""pytorch#163093, 2025: a scheduler on plateau writes a float where the learning rate was a tensor."""
import torch

model = torch.nn.Linear(1, 1)
opt = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.1))
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=1, min_lr=0.001)


@torch.compile(backend="eager")
def step(metric):
    opt.step()
    scheduler.step(metric)


for metric in [1.0, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8]:
    opt.zero_grad()
    model(torch.ones(2, 1)).sum().backward()
    step(metric)
