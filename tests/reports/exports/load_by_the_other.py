import os
import tempfile

import torch
from torch import nn

path = os.path.join(tempfile.mkdtemp(), "net.pt2")
program = torch.export.export(nn.Linear(4, 2), (torch.randn(3, 4),))
torch.export.save(program, path)
net = torch._inductor.aoti_load_package(path)
