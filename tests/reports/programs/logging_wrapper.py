"""lightning#18835: a module logs in its training step, in library code; the whole is compiled."""
import sys
import pathlib
sys.path.insert(0, str(pathlib.Path(__file__).parent / "site-packages"))
import torch
from litlib import LitModule


class Lit(LitModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, i):
        loss = self(batch).sum()
        self.log("loss", loss)
        return loss * 2


lit = Lit()
step = torch.compile(lit.training_step, backend="eager")
for i in range(3):
    step(torch.randn(3, 4), i).backward()
