"""Programs to record: functions with one line each that can be changed, and the same with one line changed.

Their kernels are generated and not compiled: nothing here depends on what they compute. They fill what they are given
with zeros, so that a loop ends.
"""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["CHANGES", "HEAD", "program"]

HEAD = {
    "cpp": """
import torch
from torch import nn
from torch.nn import functional as F
from torch._inductor import async_compile
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.utils.checkpoint import checkpoint


def zeroed(*args):
    for one in args:
        if isinstance(one, torch.Tensor):
            one.data.zero_()


async_compile.AsyncCompile.cpp_pybinding = lambda self, *args, **kwargs: zeroed
""",
    "triton": """
import torch
from torch import nn
from torch.nn import functional as F
from torch._inductor.runtime.triton_heuristics import CachingAutotuner
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.utils.checkpoint import checkpoint
from dynadiag.torch_private.interpreter_patches import generate_triton_for_cpu


def zeroed(self, *args, **kwargs):
    for one in args:
        if isinstance(one, torch.Tensor):
            one.data.zero_()


generate_triton_for_cpu()
CachingAutotuner.run = zeroed
CachingAutotuner.precompile = lambda self, *args, **kwargs: None
""",
}

_BODY = """
torch.manual_seed(0)


def pointwise(x):
    y = x.sin()  # change: cos
    return (y * 2).relu()


def between(x, w):
    y = x + 1
    z = y @ w
    return z.sin()  # change: cos


def before(x, w):
    y = x.sin()  # change: cos
    z = y @ w
    return z + 1


def reduction(x):
    y = x.sin()  # change: cos
    return y.sum(0)


def softmaxed(x, w):
    y = (x @ w).softmax(-1)
    z = y @ w
    return z.sin() * 3  # change: cos


def normed(x, w):
    y = F.layer_norm(x, (64,)) * 2.5  # change: * 3.5
    z = y @ w
    return F.layer_norm(z, (64,))


def attended(q, k, v):
    q = q * 1.5  # change: * 1.25
    y = F.scaled_dot_product_attention(q, k, v)
    return y.transpose(1, 2).relu()


def stacked(x, w):
    a = x.tanh()
    b = w.sin()  # change: cos
    y = torch.cat([a, b])
    return y @ w


def changed(x, w):
    x.add_(1)
    z = x @ w
    w.mul_(z.sin())  # change: cos
    return z


def embedded(i, w):
    y = F.embedding(i, w)
    y = y * 2  # change: * 3
    z = y.cumsum(0)
    return z.exp()


def branched(x, w):
    y = x.tanh()

    def positive(y, w):
        z = y.sin() * 2  # change: cos
        return (z @ w).exp()

    def other(y, w):
        return y.cos() - w

    z = torch.cond(x.sum() > 0, positive, other, (y, w))
    return z * 3


def looped(x):
    def goes_on(i, x):
        return i < 5

    def step(i, x):
        y = x.sin() * 0.5  # change: cos
        return i + 1, y

    i, y = while_loop(goes_on, step, (torch.tensor(0), x.tanh()))
    return y.exp()


def scanned(x):
    def step(total, x):
        y = x.sin() * 0.5  # change: cos
        z = total + y
        return z, z.exp()

    total, y = scan(step, torch.zeros(64), x)
    return y * 2 + total


def checkpointed(x, w):
    def inner(x, w):
        y = x.sin() * 2  # change: cos
        z = y @ w
        return z.exp()

    return checkpoint(inner, x.tanh(), w, use_reentrant=False) + 1


def differentiated(x):
    y = torch.func.grad(lambda t: t.sin().sum())(x)  # change: exp
    return y * 3


def run(function, *arguments, backward=True):
    compiled = torch.compile(function, fullgraph=True)
    given = [one.requires_grad_() if backward and one.is_floating_point() else one for one in arguments]
    out = compiled(*given)
    if backward:
        out.sum().backward()


def square():
    return torch.randn(64, 64)


run(pointwise, square())
run(between, square(), square())
run(before, square(), square())
run(reduction, square())
run(softmaxed, square(), square())
run(normed, square(), square())
run(attended, *(torch.randn(1, 4, 64, 16) for _ in range(3)))
run(stacked, square(), square())
run(changed, square(), square(), backward=False)
run(embedded, torch.randint(0, 64, (32,)), square())
run(branched, square(), square(), backward=False)
run(looped, square(), backward=False)
run(scanned, square(), backward=False)
run(checkpointed, square(), square())
run(differentiated, square(), backward=False)
"""

# The function, the part of its marked line that is changed, and what it becomes.
CHANGES = (
    ("pointwise", "x.sin()", "x.cos()"),
    ("between", "z.sin()", "z.cos()"),
    ("before", "x.sin()", "x.cos()"),
    ("reduction", "x.sin()", "x.cos()"),
    ("softmaxed", "z.sin()", "z.cos()"),
    ("normed", "* 2.5", "* 3.5"),
    ("attended", "* 1.5", "* 1.25"),
    ("stacked", "w.sin()", "w.cos()"),
    ("changed", "z.sin()", "z.cos()"),
    ("embedded", "* 2", "* 3"),
    ("branched", "y.sin()", "y.cos()"),
    ("looped", "x.sin()", "x.cos()"),
    ("scanned", "x.sin()", "x.cos()"),
    ("checkpointed", "x.sin()", "x.cos()"),
    ("differentiated", "t.sin()", "t.exp()"),
)


def program(language: str, *, changed: bool, runs: Collection[str] = ()) -> str:
    """The text of the program; `changed` has the marked line of each function changed. `runs`: only these functions."""
    lines = (HEAD[language] + _BODY).splitlines()
    if runs:
        calls = tuple(f"run({name}, " for name in runs)
        lines = [line for line in lines if line.startswith(calls) or not line.startswith("run(")]
    if changed:
        marks = iter(CHANGES)
        lines = [line.replace(*next(marks)[1:]) if "# change:" in line else line for line in lines]
    return "\n".join(lines) + "\n"
