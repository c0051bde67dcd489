"""Failures that people reported, written anew, which torch 2.13 still has on a CPU: rung, part of the compiler, line.

A torch that has mended one compiles it, and there is nothing to find.
"""

from __future__ import annotations

import pytest
import torch

from tests.bisection.conftest import Bisected

pytestmark = pytest.mark.slow

REINPLACED = """
def paste(board, patch):
    pasted = torch.slice_scatter(board, patch, dim=0, start=1, end=3)
    board.zero_()
    return pasted
board, patch = torch.arange(20).reshape(5, 4), -torch.arange(8).reshape(2, 4)
want = paste(board.clone(), patch)
assert torch.equal(torch.compile(paste)(board.clone(), patch), want)
"""
SHARED = """
def store(cache, rows):
    updated = torch.slice_scatter(cache, rows, dim=0, start=1, end=3)
    cache.copy_(updated)
    return updated
cache = torch.zeros(4, 2)
torch.compile(store)(cache, torch.ones(2, 2)).add_(100)
assert cache.sum() == 4, cache
"""
FORWARD_DERIVATIVE = """
class Flat(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return torch.sin(x)
    @staticmethod
    def setup_context(ctx, inputs, output):
        pass
    @staticmethod
    def jvp(ctx, tangent):
        return torch.zeros_like(tangent)
def slope(x):
    return torch.func.jvp(Flat.apply, (x,), (torch.ones_like(x),))[1]
assert torch.equal(torch.compile(slope)(torch.ones(3)), slope(torch.ones(3)))
"""
OVERLAP = """
def mix(x, y):
    x.mul_(2)
    return x + y
compiled = torch.compile(mix)
compiled(torch.ones(4), torch.ones(4))
a, b = torch.ones(8), torch.ones(8)
want = mix(a[:4], a[2:6])
assert torch.equal(compiled(b[:4], b[2:6]), want)
"""
MIXED_TYPES = """
lin = torch.nn.Linear(1, 1).eval()
raised = []
for fn in (lin, torch.compile(lin)):
    try:
        fn(torch.randn(1, 1, dtype=torch.float16))
        raised.append(False)
    except RuntimeError:
        raised.append(True)
assert raised[0] == raised[1], raised
"""
SHIFTED = """
def roll(x, where):
    x[where] = 1.0
    x[1:] = x[:-1].clone()
    return x
x, where = torch.arange(6.0), torch.tensor([0])
want = roll(x.clone(), where)
assert torch.equal(torch.compile(roll)(x.clone(), where), want)
"""
TWO_TYPES = """
def step(state, cache):
    state.add_(1)
    return cache.sum()
memory = torch.zeros(8)
torch.compile(step)(memory, memory.view(torch.int32))
"""
OVERFLOW = """
def scale(x):
    return torch.arange(9, dtype=torch.int64) * torch.tensor([1_500_000_000]) + x
x = torch.zeros(1, dtype=torch.int64)
assert torch.equal(torch.compile(scale)(x), scale(x))
"""
# The copy that a custom operator reads is removed, and its writes are put in place: it gets one tensor twice.
CLONED = """
@torch.library.custom_op("public::reverse_into", mutates_args=("to",))
def reverse_into(source: torch.Tensor, to: torch.Tensor) -> None:
    for index in range(len(source)):
        to[-1 - index] = source[index]
def mirror(x):
    before = x.clone()
    reverse_into(before, x)
    return x * 2
x = torch.arange(4.0)
want = mirror(x.clone())
assert torch.equal(torch.compile(mirror)(x), want)
"""

# Zeros without memory: ATen hands them on, so that each kernel crashes that uses them next.
WITHOUT_MEMORY = """
from torch.func import jacfwd
def model(x):
    return torch.trace(x) * torch.eye(3)
torch.compile(jacfwd(jacfwd(model)))(torch.ones(3, 3))
"""

# The gradient of sgn has no memory: each kernel that reads it crashes, and AOTAutograd cannot trace it.
ZERO_TENSOR = """
x = torch.randn(3, requires_grad=True)
z = torch.autograd.grad(torch.sgn(x).sum(), x)[0]
def read(t):
    return t[-1] + 10
torch.compile(read)(z)
"""


@pytest.mark.parametrize(
    ("program", "rung", "kind", "names", "line"),
    [
        pytest.param(REINPLACED, "inductor", "pass", ("reinplace_inplaceable_ops",), "slice_scatter", id="198094"),
        pytest.param(
            SHARED, "inductor", "pass", ("remove_noop_ops", "reinplace_inplaceable_ops"), "copy_", id="195484"
        ),
        pytest.param(
            CLONED,
            "inductor",
            "pass",
            ("remove_noop_ops", "reinplace_inplaceable_ops"),
            "reverse_into(before, x)",
            id="198031",
        ),
        pytest.param(FORWARD_DERIVATIVE, "eager", "frame", ("slope",), "def slope", id="192985"),
        pytest.param(OVERLAP, "aot_eager", "functionalization", ("mul_",), "x.mul_(2)", id="139789"),
        pytest.param(MIXED_TYPES, "aot_eager_decomp_partition", "decomposition", ("addmm",), None, id="141865"),
        pytest.param(SHIFTED, "inductor", "fusion", ("copy_",), "x[1:] = x[:-1].clone()", id="198270"),
        pytest.param(TWO_TYPES, "aot_eager", "graph", ("0/0",), "state.add_(1)", id="194747"),
        pytest.param(OVERFLOW, "inductor", "kernel", ("mul",), "torch.arange(9", id="183901"),
        pytest.param(ZERO_TENSOR, "aot_eager", "graph", ("0/0",), "t[-1] + 10", id="197067"),
        pytest.param(WITHOUT_MEMORY, "inductor", "lowering", ("mul",), "torch.trace(x)", id="190856"),
    ],
)
def test_a_public_failure_is_bisected(
    bisected: Bisected, program: str, rung: str, kind: str, names: tuple[str, ...], line: str | None
) -> None:
    source = f"import torch\n{program}"
    verdict = bisected(source)
    if verdict.verdict == "passes" and not torch.__version__.startswith("2.13."):
        pytest.skip("this torch compiles it")
    assert (verdict.verdict, verdict.rung) == ("found", rung)
    assert {culprit.group for culprit in verdict.culprits} == {kind}
    assert len(verdict.culprits) == len(names)
    assert all(name in culprit.name for name, culprit in zip(names, verdict.culprits, strict=True))
    text = source.splitlines()
    shown = [text[number - 1] for culprit in verdict.culprits for _, number in culprit.lines]
    assert line is None or any(line in each for each in shown), shown
    assert ("without vectors it passes" in verdict.confirmed[0]) == (kind == "kernel")
    assert "SIGSEGV" not in str(verdict.other_failures)
    assert not any("direction" in trial for trial in verdict.confirmed), "no program here runs a backward"


# Issue 191449: the view and its base become one object.
RESIZED = """
def grow(x):
    base = x + 1
    base.view(-1).resize_(12)
    return base + 1
x = torch.zeros(1)
assert torch.compile(grow)(x).shape == grow(x).shape
"""


def test_two_decisions_of_which_each_is_enough_are_both_named(bisected: Bisected) -> None:
    verdict = bisected(f"import torch\n{RESIZED}")
    if verdict.verdict == "passes" and not torch.__version__.startswith("2.13."):
        pytest.skip("this torch compiles it")
    named = {(culprit.group, culprit.name) for culprit in verdict.culprits}
    assert named == {("lowering", "view"), ("pattern", "pointless_view")}
    assert "each of them is enough for the failure: it is gone only with all off" in verdict.notes
    assert len(verdict.confirmed) == len(verdict.reproduce) == 3


# Issue 194479: what is detached is the object that is returned, and so marked as one without a gradient.
DETACHED = """
def trunk(x):
    y = torch.sin(x)
    return y[:2], y.detach()
x = torch.ones(4, requires_grad=True)
torch.compile(trunk)(x)[0].sum().backward()
assert x.grad is not None
"""


def test_a_pass_of_which_another_kind_does_the_same_has_its_line(bisected: Bisected) -> None:
    verdict = bisected(f"import torch\n{DETACHED}")
    named = {(culprit.group, culprit.name) for culprit in verdict.culprits}
    assert named == {("lowering", "alias"), ("pass", "remove_noop_ops")}
    assert any(culprit.nodes and culprit.lines for culprit in verdict.culprits if culprit.group == "pass")


# Issue 150114: the condition of a singular matrix is anything. A value diverges that another kernel writes.
CONDITION = """
def condition(x):
    return torch.linalg.cond(torch.arctan(x))
x = torch.ones(2, 2)
torch.testing.assert_close(torch.compile(condition)(x), condition(x))
"""


def test_rounding_is_told_where_the_value_that_diverges_is_not_the_one_at_fault(bisected: Bisected) -> None:
    verdict = bisected(f"import torch\n{CONDITION}")
    if verdict.verdict == "passes":
        pytest.skip("here the vectors of atan round as eager does")
    assert [(culprit.group, culprit.name) for culprit in verdict.culprits] == [("kernel", "atan")]
    assert any("rounding" in note for note in verdict.notes), verdict.notes
