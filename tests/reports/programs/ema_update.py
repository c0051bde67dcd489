"""threads of 2025 and 2026: an exponential average with a decay that warms up."""
import torch


class EMA:
    def __init__(self, model):
        self.shadow = [p.detach().clone() for p in model.parameters()]
        self.updates = 0

    @torch.no_grad()
    def update(self, params):
        self.updates += 1
        decay = min(0.999, (1 + self.updates) / (10 + self.updates))
        for s, p in zip(self.shadow, params):
            s.mul_(decay).add_(p, alpha=1 - decay)


model = torch.nn.Linear(4, 4)
ema = EMA(model)
update = torch.compile(ema.update, backend="eager")
for _ in range(4):
    update(list(model.parameters()))
