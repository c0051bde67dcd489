"""threads of 2025: a default argument and a class attribute, both floats, are set by a schedule."""
import torch


class Router(torch.nn.Module):
    tau = 1.0

    def __init__(self):
        super().__init__()
        self.gate = torch.nn.Linear(4, 3)

    def forward(self, x, noise=0.0):
        logits = self.gate(x) / self.tau
        if noise > 0:
            logits = logits + noise * torch.randn_like(logits)
        return logits.softmax(-1)


router = torch.compile(Router(), backend="eager")
for epoch in range(4):
    Router.tau = 1.0 / (epoch + 1)
    router(torch.randn(2, 4), noise=0.1 * (3 - epoch))
