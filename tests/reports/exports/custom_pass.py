import tempfile

import torch
from torch import nn
from torch.export import Dim, export


def custom_pass(graph):
    for node in graph.nodes:
        if node.target is torch.ops.aten.sin.default and node.meta["val"].shape[0] > 5:
            raise NotImplementedError("no kernel for so many rows")


class Model(nn.Module):
    def forward(self, x):
        return x.sin() + 1


torch._inductor.config.post_grad_custom_post_pass = custom_pass
program = export(Model(), (torch.randn(6, 5),), dynamic_shapes=({0: Dim("n")},))
with tempfile.TemporaryDirectory() as folder:
    torch._inductor.aoti_compile_and_package(program, package_path=f"{folder}/model.pt2")
