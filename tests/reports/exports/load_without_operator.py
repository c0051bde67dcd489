import os
import subprocess
import sys
import tempfile

import torch

WRITER = """
import sys, torch
from torch import nn

@torch.library.custom_op("plant::scaled", mutates_args=())
def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@scaled.register_fake
def _(x):
    return torch.empty_like(x)

class Net(nn.Module):
    def forward(self, x):
        return scaled(x) + 1

torch.export.save(torch.export.export(Net(), (torch.randn(4),)), sys.argv[1])
"""
path = os.path.join(tempfile.mkdtemp(), "net.pt2")
subprocess.run([sys.executable, "-c", WRITER, path], check=True, env=os.environ | {"DYNADIAG_RECORD": ""})
net = torch.export.load(path)
