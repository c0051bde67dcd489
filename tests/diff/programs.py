"""Recordings of small programs, made in this process."""

from __future__ import annotations

import textwrap
import warnings
from pathlib import Path

import torch

import dynadiag

BASE = """
import torch

SETTINGS = {"scale": 2.0, "trace": False}


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.spare = torch.nn.Linear(4, 4)

    def forward(self, x):
        h = torch.relu(self.first(x)) * SETTINGS["scale"]
        return h + x


block = torch.compile(Block(), backend="aot_eager")
block(torch.ones(2, 4)).sum().backward()
"""


def recorded(folder: Path, name: str, program: str) -> Path:
    """Run a program under the recorder in a fresh state of Dynamo, and return its recording."""
    source = folder / f"{name}.py"
    source.write_text(textwrap.dedent(program))
    path = folder / f"{name}.dynadiag"
    torch._dynamo.reset()
    with dynadiag.record(path), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as in a process of its own: pytest makes errors of them
        exec(compile(source.read_text(), str(source), "exec"), {"__name__": "__main__"})
    return path
