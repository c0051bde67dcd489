"""threads of 2025 (PyG): a graph's features are a dict by type, some types are missing in some batches."""
import torch


class Hetero(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lins = torch.nn.ModuleDict({k: torch.nn.Linear(4, 4) for k in ("user", "item", "tag")})

    def forward(self, x_dict):
        return {k: self.lins[k](x).relu() for k, x in x_dict.items()}


model = torch.compile(Hetero(), backend="eager")
model({"user": torch.randn(3, 4), "item": torch.randn(5, 4)})
model({"user": torch.randn(4, 4), "item": torch.randn(5, 4)})
model({"item": torch.randn(5, 4), "user": torch.randn(4, 4)})
model({"user": torch.randn(3, 4), "item": torch.randn(5, 4), "tag": torch.randn(2, 4)})
