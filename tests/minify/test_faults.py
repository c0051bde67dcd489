"""Programs on which torch's own minifier fails: each ends in a proved repro of a few operations."""

from __future__ import annotations

import re
import subprocess
import sys
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
CAUGHT = """
good = torch.compile(torch.cos)(torch.randn(3))
results = []
try:
    results.append(model(torch.randn(8, 8), torch.randn(8, 8)))
except Exception as error:
    print("FAIL", type(error))
assert results, "nothing came back"
"""
CAUGHT_BACKWARD = """
x = torch.randn(4, 4, requires_grad=True)
loss = model(x, torch.randn(4, 4))
try:
    loss.backward()
except Exception as error:
    print("FAIL", type(error))
raise SystemExit(3 if x.grad is None else 0)
"""


def without_call(program: str) -> str:
    return program[: program.rindex("\nmodel(")]


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
        (RAISE, BACKWARD, "exception", 1, ("--accuracy",)),
        (RAISE, without_call(CHAIN) + CAUGHT, "exception", 1, ()),
        (RAISE, without_call(BACKWARD) + CAUGHT_BACKWARD, "exception", 1, ()),
    ],
    ids=[
        "segfault",
        "hang",
        "second graph",
        "branch",
        "checkpoint",
        "dynamic shapes",
        "backward",
        "backward, compared",
        "caught",
        "caught in backward",
    ],
)
def test_faults(tmp_path: Path, fault: str, program: str, kind: str, nodes: int, options: tuple[str, ...]) -> None:
    code, repro, data, told = minify(tmp_path, HEAD.replace("{fault}", fault) + program, *options)
    assert code == 0, told
    failure = data["failure"]
    assert isinstance(failure, dict)
    assert failure["kind"] == kind
    assert data["nodes_after"] == nodes, repro.read_text()
    assert data["minimal"]
    if kind == "hang":
        assert re.search(r"hangs too: stopped after \d+ s; a compile that passes takes \d+ s", str(data["proof"]))


ALIAS = """
import torch

def model(x, rows, w):
    y = (w @ w).relu().sum()
    x.add_(100)
    return rows[0], y

base, w = torch.arange(240, dtype=torch.float64).reshape(24, 10), torch.ones(8, 8)
one, other = base.clone(), base.clone()
want, got = model(one, one[1:], w), torch.compile(model)(other, other[1:], w)
torch.testing.assert_close(got, want)
"""
CHANGES_ITS_GRAPH = """
import torch
from torch._inductor.compile_fx import compile_fx

def lossy(gm, example_inputs):
    for node in gm.graph.nodes:
        if node.target is torch.tanh:
            node.target = torch.sigmoid
    gm.recompile()
    return compile_fx(gm, example_inputs)

def model(x):
    return torch.tanh(torch.sin(x) * 2) + 1

x = torch.randn(4, 4)
assert torch.allclose(torch.compile(model, backend=lossy)(x), model(x))
"""
LIBRARY = """
import torch
library = torch.library.Library("faults", "DEF")
library.define("half(Tensor x) -> Tensor")
def half(x):
    return x * 0.5
library.impl("half", half, "CompositeExplicitAutograd")
@torch.library.register_fake("faults::half")
def half_fake(x):
    return x.new_empty(x.shape[0], x.shape[1] + 1)
@torch.compile
def model(x):
    return torch.ops.faults.half(torch.sin(x)).cos() + 1
model(torch.randn(4, 6))
"""
FLEX = """
from torch.nn.attention.flex_attention import flex_attention

def score(s, b, h, q, k):
    return torch.tanh(s / 20) * 20

@torch.compile(fullgraph=True)
def model(q, k, v):
    return flex_attention(q * 2, k, v, score_mod=score).sum(-1)

with torch.no_grad():
    model(*(torch.randn(1, 2, 16, 16) for _ in range(3)))
"""
SCAN = """
from torch._higher_order_ops.scan import scan

def step(carry, row):
    carry = torch.tanh(carry + row)
    return carry, carry.clone()

@torch.compile(fullgraph=True)
def model(x):
    last, rows = scan(step, torch.zeros(4), torch.sin(x) + 1)
    return last.sum() + rows.mean()

model(torch.randn(6, 4))
"""
TRANSFORM = """
def loss(w, x, y):
    return ((torch.tanh(x @ w) - y) ** 2).mean()

@torch.compile
def model(w, xs, ys):
    grads = torch.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(w, xs, ys)
    return (grads * grads).sum((1,))

model(torch.randn(4), torch.randn(8, 4), torch.randn(8))
"""
# pytorch/pytorch#139789: the code of the first call is kept for the second, which would need its own.
APART = """
import torch

@torch.compile
def model(x, y):
    x.mul_(2)
    return torch.tanh(x + y)

model(torch.ones(4), torch.ones(4))
base = torch.ones(8)
torch.testing.assert_close(model(base[:4], base[2:6]), torch.tanh(torch.tensor([4.0, 4, 3, 3])))
"""
# pytorch/pytorch#190856: the kernel reads the zeros of a derivative, which have no memory.
FORWARD = """
import torch
from torch.func import jacfwd

def model(x):
    return torch.trace(x) * torch.eye(3)

torch.compile(jacfwd(jacfwd(model)))(torch.randn(3, 3))
"""
EARLIER = """
import torch
import torch._inductor.lowering as lowering
from torch._inductor.virtualized import V

original = lowering.lowerings[torch.ops.aten.mul.Tensor]
def replaced(x, y):
    symbolic = hasattr(y, "free_symbols")
    return original(x, int(y.xreplace(V.graph.sizevars.shape_env.backed_var_to_val)) if symbolic else y)
lowering.lowerings[torch.ops.aten.mul.Tensor] = replaced

def model(x):
    y = torch.sin(x) + 1
    return y.cos() * x.shape[0]

compiled = torch.compile(model)
for n in (4, 5, 6, 7):
    x = torch.randn(n, 8)
    torch.testing.assert_close(compiled(x), model(x))
"""
UNSEEDED = """
import torch
import torch._inductor.lowering as lowering

lowering.lowerings[torch.ops.aten.tanh.default] = lowering.lowerings[torch.ops.aten.sin.default]
unlucky = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))

def model(x, y):
    return torch.tanh(x * 2) * (x - y).abs().sign()

x = torch.randn(4, 4)
torch.testing.assert_close(torch.compile(model)(x, unlucky), model(x, unlucky))
"""
SUBCLASS = """
from torch.testing._internal.two_tensor import TwoTensor

@torch.compile
def model(x, y):
    return torch.tanh(x * 2).sum() + y.sum()

model(TwoTensor(torch.randn(4, 4), torch.randn(4, 4)), torch.randn(3))
"""

# Inductor's own drawing does not check what eager's does, which `fallback_random` would have it use.
DRAWN = """
import torch


def f(mean, std):
    return torch.normal(mean.tanh(), std - 1).relu() + 1


try:
    torch.compile(f)(torch.zeros(3), torch.tensor([2.0, 0.5, 2.0]))
except RuntimeError:
    print("refused, as it is uncompiled")
else:
    raise AssertionError("accepted")
"""


OTHER_TYPE = """
import torch

def f(loc, scale):
    return torch.distributions.Normal(loc, scale).sample() + 1

loc, scale = torch.zeros(8).half(), torch.ones(8)
assert torch.compile(f)(loc, scale).dtype == f(loc, scale).dtype
"""


@pytest.mark.parametrize(
    ("program", "kind", "nodes", "words"),
    [
        (ALIAS, "wrong_result", 2, ("rows = x[1:]",)),
        (CHANGES_ITS_GRAPH, "wrong_result", 1, ("def lossy(", "torch.tanh(", "backend=lossy")),
        (LIBRARY, "exception", 1, ('register_fake("faults::half", half_fake)',)),
        (HEAD.replace("{fault}", RAISE) + FLEX, "exception", 2, ("flex_attention(", "torch.tanh(")),
        (HEAD.replace("{fault}", RAISE) + SCAN, "exception", 3, ("scan(", "torch.tanh(", "fullgraph=True")),
        (HEAD.replace("{fault}", RAISE) + TRANSFORM, "exception", 1, ("aten.tanh.default(",)),
        (UNSEEDED, "wrong_result", 1, ("torch.tanh(",)),
        (EARLIER, "wrong_result", 1, ("compiled = torch.compile(f, dynamic=True)\ncompiled(",)),
        (APART, "wrong_result", 2, ("compiled = torch.compile(f", "compiled(torch.ones(")),
    ],
    ids=[
        "aliased inputs",
        "a backend that changes its graph",
        "an operator of a library",
        "flex attention",
        "scan",
        "functorch",
        "random numbers with which it passes",
        "an earlier call",
        "an earlier call whose inputs share no memory",
    ],
)
def test_programs(tmp_path: Path, program: str, kind: str, nodes: int, words: tuple[str, ...]) -> None:
    code, repro, data, told = minify(tmp_path, program)
    assert code == 0, told
    failure = data["failure"]
    assert isinstance(failure, dict)
    assert failure["kind"] == kind
    assert data["nodes_after"] == nodes, repro.read_text()
    assert data["minimal"]
    assert [word for word in words if word not in repro.read_text()] == []
    _assert_minimal(repro)


def test_a_check_that_only_the_code_for_random_numbers_lacks(tmp_path: Path) -> None:
    """Not held against `one_minimal.py`: what raises no longer fails there too, since it should have raised."""
    code, repro, data, told = minify(tmp_path, DRAWN)
    assert code == 0, told
    assert data["proved"]
    assert data["minimal"]
    assert data["nodes_after"] == 1
    assert "except RuntimeError" in repro.read_text()


def test_a_type_that_only_the_code_for_random_numbers_gives(tmp_path: Path) -> None:
    """The values are random in either case, so the repro compares everything but values."""
    code, repro, data, told = minify(tmp_path, OTHER_TYPE)
    assert code == 0, told
    assert data["proved"]
    assert data["symptom"]["asserted"] == "torch.compile(f)(loc, scale).dtype == f(loc, scale).dtype"
    assert data["nodes_after"] == 1
    assert "t.dtype" in repro.read_text()
    assert "assert_close" not in repro.read_text()


def test_derivatives_forward_are_kept_whole(tmp_path: Path) -> None:
    """As Dynamo wrote them: their ATen operators do not fail by themselves. Unused wrapped values are removed."""
    code, repro, data, told = minify(tmp_path, FORWARD)
    assert code == 0, told
    assert data["proved"]
    assert int(str(data["nodes_after"])) < int(str(data["nodes_before"])) - 15
    assert "_make_dual(" in repro.read_text()


def _assert_minimal(repro: Path) -> None:
    """Every single removal, by a program that knows nothing of the reducer: none still fails."""
    script = Path(__file__).parents[2] / "benchmarks" / "one_minimal.py"
    done = subprocess.run([sys.executable, str(script), str(repro)], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr


def test_where_no_graph_can_be_reduced_the_source_is(tmp_path: Path) -> None:
    """A graph that takes a tensor subclass cannot be run outside the program."""
    code, repro, data, told = minify(tmp_path, HEAD.replace("{fault}", RAISE) + SUBCLASS)
    assert code == 0, told
    assert (data["proved"], data["level"]) == (True, "source")
    assert any("TwoTensor" in note for note in data["notes"])
    assert "TwoTensor" in repro.read_text()


SET_DATA = """
import torch

def f(x, w):
    y = x * w
    w.data = w.data + 1
    return y * w

def run(fn):
    x, w = torch.ones(3), torch.full((3,), 2.0, requires_grad=True)
    fn(x, w).sum().backward()
    return w.grad

assert torch.equal(run(torch.compile(f)), run(f))
"""


def test_a_gradient_that_a_new_value_of_an_input_makes_wrong(tmp_path: Path) -> None:
    """``w.data = ...``: the graph passes outside the program."""
    code, repro, data, told = minify(tmp_path, SET_DATA)
    if code == 3:
        pytest.skip("this torch compiles it")
    assert code == 0, told
    assert (data["proved"], data["level"], data["rung"]) == (True, "source", "aot_eager")
    text = repro.read_text()
    assert ".data = " in text
    assert "backend='aot_eager'" in text
