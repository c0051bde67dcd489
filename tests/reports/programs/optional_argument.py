"""threads of 2025: a keyword argument is given in some calls only, and a string selects the way."""
import torch


@torch.compile(backend="eager")
def attend(x, bias=None, kind="soft"):
    if bias is not None:
        x = x + bias
    return x.softmax(-1) if kind == "soft" else x.relu()


x = torch.randn(3, 3)
attend(x)
attend(x, bias=torch.ones(3))
attend(x, kind="hard")
