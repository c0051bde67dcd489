"""threads of 2025 and 2026: a library logs a warning once, from inside the model."""
import logging
import torch

logger = logging.getLogger("net")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x, mask=None):
        x = self.linear(x)
        if mask is None:
            logger.warning("no mask given, shape %s", x.shape)
        return x.relu()


net = torch.compile(Net(), backend="eager")
net(torch.randn(2, 4))
