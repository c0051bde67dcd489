import torch
from torch import nn
from torch.export import Dim, export


class Fuse(nn.Module):
    def __init__(self):
        super().__init__()
        self.text = nn.Linear(8, 8)
        self.image = nn.Linear(8, 8)

    def forward(self, text, image):
        text, image = self.text(text), self.image(image)
        return text * image


texts, images = Dim("texts"), Dim("images")
export(
    Fuse(),
    (torch.randn(4, 8), torch.randn(4, 8)),
    dynamic_shapes={"text": {0: texts}, "image": {0: images}},
    strict=True,
)
