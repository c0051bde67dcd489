"""Programs to record: ten functions with one line each that can be changed, and the same with one line changed.

Their kernels are generated and not compiled: nothing here depends on what they compute.
"""

from __future__ import annotations

__all__ = ["CHANGES", "program"]

_HEAD = {
    "cpp": """
import torch
from torch import nn
from torch.nn import functional as F
from torch._inductor import async_compile

async_compile.AsyncCompile.cpp_pybinding = lambda self, *args, **kwargs: lambda *args: None
""",
    "triton": """
import torch
from torch import nn
from torch.nn import functional as F
from torch._inductor.runtime.triton_heuristics import CachingAutotuner
from dynadiag.torch_private.interpreter import generate_triton_for_cpu

generate_triton_for_cpu()
CachingAutotuner.run = lambda self, *args, **kwargs: None
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


def run(function, *arguments, backward=True):
    compiled = torch.compile(function)
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
)


def program(language: str, *, changed: bool) -> str:
    """The text of the program; `changed` has the marked line of each function changed."""
    lines = (_HEAD[language] + _BODY).splitlines()
    if changed:
        marks = iter(CHANGES)
        lines = [line.replace(*next(marks)[1:]) if "# change:" in line else line for line in lines]
    return "\n".join(lines) + "\n"
