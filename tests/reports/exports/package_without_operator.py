import os
import subprocess
import sys
import tempfile

import torch

WRITER = """
import sys, torch
from torch import nn

@torch.library.custom_op("plant::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@doubled.register_fake
def _(x):
    return torch.empty_like(x)

class Net(nn.Module):
    def forward(self, x):
        return doubled(x) + 1

torch._inductor.aoti_compile_and_package(torch.export.export(Net(), (torch.randn(4),)), package_path=sys.argv[1])
"""
path = os.path.join(tempfile.mkdtemp(), "net.pt2")
subprocess.run([sys.executable, "-c", WRITER, path], check=True, env=os.environ | {"DYNADIAG_RECORD": ""})
net = torch._inductor.aoti_load_package(path)
