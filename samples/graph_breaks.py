"""A small convnet with four lines in its forward that may break the graph: which of them do?

An assertion on a tensor, a number taken from a tensor and stored in a dict, a loop over a NumPy array, and a print. At
the end the program asks dynadiag at which of the four lines this version of torch broke the graph.

    dynadiag explain samples/graph_breaks.py
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

import dynadiag

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MARK = "  # suspect: "


class ConvNet(nn.Module):
    """Classifies small images into four classes."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, 8, kernel_size=3, padding=1)
        self.classify = nn.Linear(8, 4)
        self.seen: dict[str, float] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert torch.all(torch.isfinite(x)), "the input has to be finite"  # suspect: an assertion on a tensor
        x = torch.relu(self.features(x))
        self.seen["peak"] = x.max().item()  # suspect: a number taken out of a tensor
        for shift in np.arange(3):  # suspect: a loop over a NumPy array
            x = x + 0.1 * shift
        x = self.classify(x.mean(dim=(2, 3)))
        print(x)  # suspect: a print
        return x.softmax(dim=-1)


def suspects() -> dict[int, str]:
    """Return line -> suspect, from the marks in this file."""
    lines = Path(__file__).read_text().splitlines()
    marked = [(number, line) for number, line in enumerate(lines, 1) if MARK in line and not line.startswith("MARK")]
    return {number: line.split(MARK)[1] for number, line in marked}


def main() -> None:
    torch.manual_seed(0)
    net = ConvNet().to(DEVICE)
    images = torch.randn(2, 3, 8, 8, device=DEVICE)
    compiled = torch.compile(net, backend="eager")

    with tempfile.TemporaryDirectory() as folder:
        with torch.no_grad(), dynadiag.record(Path(folder, "call.dynadiag")) as path:
            result = compiled(images)
        with dynadiag.open(path) as recording:
            found = {met.span.line: met.gb_id or met.gb_type for met in recording.breaks()}
    print("result", hashlib.sha256(result.cpu().numpy().tobytes()).hexdigest()[:16])
    print(f"on torch {torch.__version__.partition('+')[0]}, of four suspects:")
    for line, what in suspects().items():
        print(f"  line {line}, {what}: {f'breaks the graph ({found[line]})' if line in found else 'does not break it'}")


if __name__ == "__main__":
    main()
