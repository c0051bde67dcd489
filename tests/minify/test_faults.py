"""What breaks torch's own minifier: each program ends in a repro of a few operations, proved."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.minify.test_command import minify

pytestmark = pytest.mark.slow

HEAD = """
import os
import signal
import time
import torch
import torch._inductor.lowering as lowering

def replaced(*args, **kwargs):
    {fault}

original = lowering.lowerings[torch.ops.aten.tanh.default]
lowering.lowerings[torch.ops.aten.tanh.default] = replaced
"""
CHAIN = """
@torch.compile
def model(x, w):
    for _ in range(4):
        x = torch.sin(x @ w) + x
    return torch.tanh(x).sum(-1) * 2

model(torch.randn(8, 8), torch.randn(8, 8))
"""
RAISE = 'raise NotImplementedError("not here")'
TWO_GRAPHS = """
@torch.compile
def model(x):
    x = torch.sin(x) + 1
    torch._dynamo.graph_break()
    return torch.tanh(x * 2) + x

model(torch.randn(8, 8))
"""
BRANCH = """
@torch.compile
def model(x, flag):
    y = torch.sin(x) * 2
    y = torch.cond(flag, lambda t: torch.tanh(t) + 1, lambda t: torch.cos(t), (y,))
    return y.sum(-1)

model(torch.randn(8, 8), torch.tensor(True))
"""
CHECKPOINT = """
from torch.utils.checkpoint import checkpoint

def block(x, w):
    return torch.tanh(x @ w)

@torch.compile
def model(x, w):
    return checkpoint(block, torch.sin(x), w, use_reentrant=False).sum()

model(torch.randn(8, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)).backward()
"""
DYNAMIC = """
@torch.compile(dynamic=True)
def model(x):
    y = torch.sin(x).reshape(x.shape[0] * x.shape[1])
    return torch.tanh(y) + 1

model(torch.randn(6, 8))
"""
ONLY_SYMBOLIC = """
    if all(size.is_integer and size.is_number for size in args[0].get_size()):
        return original(*args, **kwargs)
    raise NotImplementedError("not here")
"""
BACKWARD = """
@torch.compile
def model(x, w):
    return (torch.sigmoid(x @ w) + x).sum()

lowering.lowerings[torch.ops.aten.sigmoid_backward.default] = replaced
from torch._inductor.decomposition import decompositions
decompositions.pop(torch.ops.aten.sigmoid_backward.default)
model(torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)).backward()
"""


@pytest.mark.parametrize(
    ("fault", "program", "kind", "nodes", "options"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", CHAIN, "signal", 1, ()),
        ("time.sleep(100000)", CHAIN, "hang", 1, ("--timeout", "30")),
        (RAISE, TWO_GRAPHS, "exception", 1, ()),
        (RAISE, BRANCH, "exception", 2, ()),
        (RAISE, CHECKPOINT, "exception", 2, ()),
        (ONLY_SYMBOLIC, DYNAMIC, "exception", 1, ()),
        (RAISE, BACKWARD, "exception", 1, ()),
    ],
    ids=["segfault", "hang", "second graph", "branch", "checkpoint", "dynamic shapes", "backward"],
)
def test_faults(tmp_path: Path, fault: str, program: str, kind: str, nodes: int, options: tuple[str, ...]) -> None:
    code, repro, data, told = minify(tmp_path, HEAD.replace("{fault}", fault) + program, *options)
    assert code == 0, told
    failure = data["failure"]
    assert isinstance(failure, dict)
    assert failure["kind"] == kind
    assert data["nodes_after"] == nodes, repro.read_text()
    assert data["minimal"]
