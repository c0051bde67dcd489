"""Programs that show, on a CPU, what a user asks: one function for each question of `agent_questions.json`.

    python benchmarks/agent_questions.py j1_11

The questions are those on which compile-qa-bench (https://github.com/penguinwu/compile-qa-bench) tried its rubric, and
a function has the name of its question. `mcp_session.py` makes the call of a tool for each, and marks the answer.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

Case = tuple[Any, tuple[Any, ...]]


def j1_4() -> None:
    """There is no C++ compiler."""
    torch._inductor.config.cpp.cxx = ("no-such-compiler",)
    torch.compile(torch.relu)(torch.randn(4, 8))


def j1_5() -> Case:
    """A small network on a CPU: does compiling it pay?"""
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU())
    return net.eval(), (torch.randn(1, 3, 32, 32),)


def j1_6() -> None:
    """Tensor parallel: two linear layers, of columns and of rows."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    one_rank()
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
    net = parallelize_module(net, init_device_mesh("cpu", (1,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    torch.compile(net)(torch.randn(4, 16)).sum().backward()


def j1_11() -> None:
    """A start that compiles again, although all caches are on: a constant of the graph is new at each start."""
    started = time.time()
    torch.compile(lambda x: (x * started).relu().sum())(torch.randn(64))


def j1_16() -> None:
    """Random complex numbers."""
    torch.compile(lambda x: torch.randn(x.size(), dtype=x.dtype))(torch.empty(4, dtype=torch.complex64))


def j1_19() -> None:
    """The linker does not find a library, here one that this compiler is made to ask for."""
    with tempfile.TemporaryDirectory() as folder:
        compiler = Path(folder, "g++")
        compiler.write_text('#!/bin/sh\nexec g++ "$@" -lcuda_of_the_driver\n')
        compiler.chmod(0o700)
        torch._inductor.config.cpp.cxx = (str(compiler),)
        torch.compile(torch.relu)(torch.randn(4, 8))


def j2_6() -> Case:
    """One product of matrices: nothing is faster compiled."""
    x, weight, bias = torch.randn(1, 1024, 768), torch.randn(768, 2304), torch.randn(2304)
    return lambda x, weight, bias: torch.matmul(x, weight) + bias, (x, weight, bias)


def j2_9() -> None:
    """A decoder that is slower compiled: its cache grows, and each step is compiled again."""
    layer = nn.Linear(16, 16)

    def step(x: torch.Tensor, cache: list[torch.Tensor]) -> torch.Tensor:
        cache.append(layer(x))
        return functional.softmax(torch.stack(cache).sum(0), -1)

    step, cache, x = torch.compile(step), [], torch.randn(2, 16)
    for _ in range(12):
        x = step(x, cache)


def j3_3() -> Case:
    """Attention whose compiled numbers are wrong: a fault of Inductor is switched on."""
    torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
    return lambda x: functional.softmax(torch.relu(x) @ x.mT, -1), (torch.randn(4, 16),)


def j3_4() -> Case:
    """A norm in half precision: the square of a large value is infinite, and then NaN."""

    def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        squares = x * x
        scale = torch.rsqrt(squares.mean(-1, keepdim=True))
        return squares * scale * weight

    return norm, (torch.full((4, 64), 300.0, dtype=torch.float16), torch.ones(64, dtype=torch.float16))


def j3_8() -> Case:
    """Grouped-query attention with a mask and an odd length, backward too."""

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        return torch.stack(torch.autograd.grad(out.sum(), (k, v)))

    q, k, v = (torch.randn(1, heads, 33, 16, requires_grad=True) for heads in (8, 2, 2))
    return attention, (q, k, v, torch.ones(33, 33, dtype=torch.bool).tril())


@dataclasses.dataclass(frozen=True)
class Frozen:
    """A configuration that cannot be changed."""

    width: int


def j4_13() -> None:
    """Each call gets a new object of a frozen dataclass."""
    scale = torch.compile(lambda config, x: x * config.width, dynamic=False)
    for width in (1, 2, 3):
        scale(Frozen(width), torch.randn(4))


def j4_18() -> None:
    """The gradient of a gradient."""
    x = torch.tensor(1.0, requires_grad=True)
    y = torch.compile(lambda x: x**5)(x)
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    torch.autograd.grad(first, x)


def j4_2() -> None:
    """A wrapper for data parallel is compiled; the module has a buffer that it broadcasts."""
    one_rank()
    net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)))
    torch.compile(net)(torch.randn(4, 8)).sum().backward()


class Lender(nn.Module):
    """Has the method that another module borrows."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the linear layer makes of it."""
        return torch.relu(self.linear(x))


class Borrower(nn.Module):
    """Calls a method that is bound to another module."""

    def __init__(self, lender: Lender) -> None:
        super().__init__()
        self.__dict__.update(lender.__dict__)
        self.project = lender.project

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Call it."""
        return self.project(x)


def j4_3() -> None:
    """A method of another object."""
    torch.compile(Borrower(Lender()), fullgraph=True)(torch.randn(2, 4))


def j4_5() -> None:
    """A function that must not be compiled calls one that is."""

    @torch.compile(fullgraph=True)
    def inner(x: torch.Tensor) -> torch.Tensor:
        x = x.cos()
        print(x.sum())
        return x.cos()

    def outer(x: torch.Tensor) -> torch.Tensor:
        return inner(x)

    torch.compiler.disable(outer)(torch.randn(5))


@dataclasses.dataclass
class Point:
    """A record that is made while tracing."""

    x: int


def j4_6() -> None:
    """Two records are compared."""
    torch.compile(lambda x: x + 1 if Point(3) == Point(4) else x - 1, fullgraph=True)(torch.randn(4))


def j4_9() -> None:
    """The mask of a block is made in the compiled function."""
    from torch.nn.attention import flex_attention as flex

    def attend(q: torch.Tensor) -> torch.Tensor:
        mask = flex.create_block_mask(lambda _b, _h, i, j: i >= j, None, None, 128, 128, device="cpu")
        return flex.flex_attention(q, q, q, block_mask=mask)

    torch.compile(attend)(torch.randn(1, 1, 128, 16))


def j5_1() -> None:
    """A loss under autocast, compiled with max-autotune: is it less precise?"""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 8))
    step = torch.compile(lambda x, y: functional.cross_entropy(net(x), y), mode="max-autotune")
    with torch.autocast("cpu", torch.bfloat16):
        step(torch.randn(32, 64), torch.arange(32) % 8).backward()


def j6_8() -> None:
    """A slice whose end a tensor holds."""
    torch.compile(lambda x, size: x[:size] * 2)(torch.randn(10, 3), torch.tensor(5))


def j6_16() -> None:
    """An operator of one's own that takes sizes which a tensor holds."""
    torch._dynamo.config.capture_scalar_outputs = True

    @torch.library.custom_op("agents::split_and_clone", mutates_args=())
    def split(x: torch.Tensor, sizes: list[int]) -> list[torch.Tensor]:
        return [part.clone() for part in torch.split(x, sizes)]

    @split.register_fake
    def _(x: torch.Tensor, sizes: list[int]) -> list[torch.Tensor]:
        return [x.new_empty((size, *x.shape[1:])) for size in sizes]

    torch.compile(lambda x, sizes: split(x, sizes.tolist()))(torch.randn(10, 3), torch.tensor([4, 6]))


class Buffers:
    """Buffers by name and dtype."""

    def __init__(self) -> None:
        self.held = collections.OrderedDict({("mpu", torch.bfloat16): torch.zeros(16, dtype=torch.bfloat16)})

    def like(self, x: torch.Tensor) -> torch.Tensor:
        """Return the buffer for a tensor."""
        return self.held["mpu", x.dtype][: x.numel()].view_as(x)


def j6_17() -> None:
    """A dict whose keys have a dtype in them, used twice in one graph."""
    buffers = Buffers()
    torch.compile(lambda x: buffers.like(x).add_(x) + buffers.like(x))(torch.ones(8, dtype=torch.bfloat16))


class Deep(nn.Module):
    """A model of many alike layers."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.GELU()) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the layers in order."""
        for layer in self.layers:
            x = x + layer(x)
        return x


def j7_3() -> None:
    """An optimizer that goes from parameter to parameter."""
    parameters = [nn.Parameter(torch.randn(4)) for _ in range(60)]
    optimizer = torch.optim.Adam(parameters, foreach=False)
    for parameter in parameters:
        parameter.grad = torch.randn(4)
    torch.compile(optimizer.step)()


def j7_9() -> None:
    """A deep model in one compile."""
    torch.compile(Deep(80))(torch.randn(2, 16))


def j7_12() -> None:
    """A program whose second start is slow too: what it is called with is traced anew, for several lengths."""
    net = torch.compile(Deep(8), dynamic=False)
    for length in (2, 3, 4):
        net(torch.randn(length, 16))


def j7_14() -> None:
    """A tiny function whose compile is asked what it spends time on."""
    torch.compile(lambda x: x.relu() + 1)(torch.randn(64))


def j7_17() -> None:
    """A start with warm caches: tracing is done again."""
    with torch.no_grad():
        torch.compile(Deep(8))(torch.randn(2, 16))


def j8_5() -> None:
    """Attention with a mask for each entry of a batch, whose size changes."""
    from torch.nn.attention import flex_attention as flex

    attend = torch.compile(flex.flex_attention, dynamic=True)
    for batch in (2, 3, 4):
        q = torch.randn(batch, 1, 128, 16)
        lengths = torch.full((batch,), 100)
        mask = flex.create_block_mask(
            lambda b, _h, _i, j, lengths=lengths: j < lengths[b], batch, None, 128, 128, device="cpu"
        )
        attend(q, q, q, block_mask=mask)


def j8_9() -> None:
    """A sum of complex numbers."""
    torch.compile(lambda x, y: x + y)(torch.ones(4, dtype=torch.complex128), torch.ones(4, dtype=torch.complex128))


def j8_17() -> Case:
    """An operator that the decorator registers."""

    @torch.library.custom_op("agents::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    twice.register_fake(torch.empty_like)
    return lambda x: twice(twice(twice(x))), (torch.randn(8),)


def one_rank() -> None:
    """Make a process group of this process alone."""
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1"}
    torch.distributed.init_process_group("gloo")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
