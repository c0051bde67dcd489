"""A planted failure of CUDA graphs."""

from __future__ import annotations

import pytest
import torch

from tests.bisection.conftest import Bisected

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

WRONG = """
import torch
import torch._inductor.compile_fx as compile_fx

inner = compile_fx.cudagraphify
def cudagraphify(*args, **kwargs):
    run = inner(*args, **kwargs)
    return lambda inputs: [out + 1 for out in run(inputs)]
compile_fx.cudagraphify = cudagraphify

def f(x):
    y = x.sin()
    return (y @ y).relu()

x = torch.randn(32, 32, device="cuda")
compiled = torch.compile(f, mode="reduce-overhead")
for _ in range(3):
    assert torch.allclose(compiled(x), f(x), atol=1e-3)
"""


def test_a_wrong_cuda_graph_is_named_with_the_line_where_it_begins(bisected: Bisected) -> None:
    verdict = bisected(WRONG)
    assert verdict.rung == "inductor"
    assert [(c.group, c.name, c.graph) for c in verdict.culprits] == [("cudagraphs", "cudagraphs", "inference")]
    ((_, line),) = verdict.culprits[0].lines
    assert WRONG.splitlines()[line - 1].strip() == "y = x.sin()"
