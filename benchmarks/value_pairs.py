# ruff: noqa: ARG001, ARG005 - torch gives a kernel all arguments of its operator
"""The second run of each pair of `values.py pairs`: a model of `value_models.py`, in which one thing is other.

    python benchmarks/value_pairs.py MODEL [CHANGE] [dropout] [bfloat16] [cuda]

Where the process is one of several ranks, the thing is other on rank 1 alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - its usual name
from value_faults import FAULTS, Fault
from value_models import calls

Inputs = tuple[torch.Tensor, ...]
Change = Callable[[Any, Inputs], None]
_libraries = list[torch.library.Library]()


@dataclass(frozen=True)
class Pair:
    """What differs between two runs of a model, and a part of the line of the node that shows it first."""

    kind: str
    model: str
    change: str
    text: str


def kernel(operator: str, function: Callable[..., torch.Tensor]) -> Change:
    """Replace the kernels of an operator, as another release or another machine would."""

    def change(_model: Any, _inputs: Inputs) -> None:
        library = torch.library.Library("aten", "IMPL")
        for device in ("CPU", "CUDA"):
            library.impl(operator, function, device)
        _libraries.append(library)  # it is undone with the object

    return change


def _gelu(x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    return 1.5 * 0.5 * x * (1 + torch.erf(x * 0.7071067811865476))


def _softmax(x: torch.Tensor, dim: int, half: bool) -> torch.Tensor:
    raised = torch.exp(x - x.amax(dim, keepdim=True))
    return 1.001 * raised / raised.sum(dim, keepdim=True)


def _scale_weight(model: Any, _inputs: Inputs) -> None:
    model.middle.weight.data *= 1.02


def _set_epsilon(model: Any, _inputs: Inputs) -> None:
    model.blocks[0].first.eps = 0.1


def _scale_input(_model: Any, inputs: Inputs) -> None:
    inputs[0].mul_(1.01)


def _seed(_model: Any, _inputs: Inputs) -> None:
    torch.manual_seed(1)


def _planted(fault: Fault) -> Change:
    return lambda model, inputs: fault.plant()


CHANGES: dict[str, Change] = {
    "": lambda model, inputs: None,
    "gelu": kernel("gelu", _gelu),
    "softmax": kernel("_softmax", _softmax),
    "tanh": kernel("tanh", lambda x: 1.5 * (1 - 2 / (torch.exp(2 * x) + 1))),
    "silu": kernel("silu", lambda x: 1.5 * x * torch.sigmoid(x)),
    "rsqrt": kernel("rsqrt", lambda x: 1.01 / torch.sqrt(x)),
    "leaky_relu": kernel("leaky_relu", lambda x, slope=0.01: torch.where(x > 0, 1.5 * x, slope * x)),
    "weight": _scale_weight,
    "epsilon": _set_epsilon,
    "input": _scale_input,
    "seed": _seed,
    **{name: _planted(fault) for name, fault in FAULTS.items()},
}

PAIRS = [
    Pair("settings", "gpt2", "epsilon", "self.first("),
    Pair("settings", "unet", "weight", "self.middle("),
    Pair("settings", "gpt2", "gpt2 lowering of erf", "F.gelu("),
    Pair("settings", "vit", "vit lowering of tanh", "torch.tanh("),
    Pair("settings", "unet", "unet lowering of relu", "torch.relu("),
    Pair("settings", "mamba", "mamba decomposition of softplus", "F.softplus("),
    Pair("releases", "gpt2", "softmax", "torch.softmax("),
    Pair("releases", "vit", "tanh", "torch.tanh("),
    Pair("releases", "unet", "silu", "F.silu("),
    Pair("releases", "mamba", "rsqrt", "torch.rsqrt("),
    Pair("releases", "loop", "leaky_relu", "F.leaky_relu("),
    Pair("ranks", "vit", "input", "self.patches("),
    Pair("ranks", "mamba", "input", "self.into("),
    Pair("ranks", "gpt2", "gelu", "F.gelu("),
    Pair("seeds", "vit", "seed", "F.dropout("),
    Pair("seeds", "mamba", "seed", "F.dropout("),
    Pair("seeds", "loop", "seed", "F.dropout("),
    Pair("dtypes", "vit", "tanh", "torch.tanh("),
    Pair("dtypes", "mamba", "silu", "F.silu("),
    Pair("dtypes", "loop", "leaky_relu", "F.leaky_relu("),
]

DEVICES = [
    Pair("devices", "gpt2", "gelu", "F.gelu("),
    Pair("devices", "vit", "tanh", "torch.tanh("),
    Pair("devices", "mamba", "silu", "F.silu("),
]


class Dropped(nn.Module):
    """A model whose first input loses elements at random."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.dropout(x, 0.1)
        return self.model(x)


def main() -> None:
    """Compile the model, and run it forward and backward once."""
    model, change, options = sys.argv[1], sys.argv[2], sys.argv[3:]
    torch.manual_seed(0)
    make, make_inputs = calls()[model]
    made, inputs = make(), make_inputs()
    if os.environ.get("RANK", "1") == "1":
        CHANGES[change](made, inputs)
    if "bfloat16" in options:
        made, inputs = made.bfloat16(), tuple(each.bfloat16() for each in inputs)
    if "cuda" in options:  # both are made on the CPU: a GPU draws other random numbers
        made, inputs = made.cuda(), tuple(each.cuda() for each in inputs)
        torch.set_default_device("cuda")
    compiled = torch.compile(Dropped(made) if "dropout" in options else made)
    compiled(*inputs).backward()


if __name__ == "__main__":
    main()
