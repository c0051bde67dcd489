import torch
from torch import nn
from torch.export import Dim, export


class Keep(nn.Module):
    def forward(self, boxes, scores):
        kept = boxes[scores > 0.5]
        if kept.shape[0] == 0:
            return torch.zeros(1, 4)
        return kept.mean(0, keepdim=True)


n = Dim("n")
export(Keep(), (torch.rand(20, 4), torch.rand(20)), dynamic_shapes={"boxes": {0: n}, "scores": {0: n}})
