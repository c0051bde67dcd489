"""A kernel that breaks the GPU: the next call raises, whatever it is."""

from __future__ import annotations

import pytest
import torch

from tests.bisection.conftest import Bisected

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

# An index far out of bounds gives an assertion in the kernel, or an illegal memory access.
PROGRAM = """
import torch
import torch._inductor.config as config, torch._inductor.lowering as lowering
config.fx_graph_cache = False
config.assert_indirect_indexing = {asserted}
aten = torch.ops.aten
inner, add = lowering.lowerings[aten.embedding.default], lowering.lowerings[aten.add.Tensor]
lowering.lowerings[aten.embedding.default] = lambda table, at, *more: inner(table, add(at, 10**10), *more)

def f(table, at, w):
    x = torch.sin(table)
    y = torch.nn.functional.embedding(at, x)
    for _ in range({layers}):
        y = torch.softmax(torch.relu(y @ w), -1)
    return y

table, at, w = torch.randn(99, 64, device="cuda"), torch.arange(12, device="cuda"), torch.eye(64, device="cuda")
print(torch.compile(f)(table, at, w).sum().item())
"""


@pytest.mark.parametrize("layers", [0, 3])
@pytest.mark.parametrize("asserted", [True, False])
def test_the_lowering_is_named_wherever_the_error_was_noticed(bisected: Bisected, asserted: bool, layers: int) -> None:
    verdict = bisected(PROGRAM.format(asserted=asserted, layers=layers))
    assert verdict.failure is not None
    assert verdict.failure.device_error is not None
    assert [(c.group, c.name) for c in verdict.culprits] == [("lowering", "embedding")]
