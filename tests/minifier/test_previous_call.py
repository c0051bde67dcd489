from __future__ import annotations

import pytest
import torch
from torch import fx

from minifier.previous_call import previous_inputs, share_storage


def graph_of(*inputs: object) -> tuple[fx.GraphModule, list[object]]:
    """The last graph that Dynamo makes of a function called with each size, and the inputs of that call."""
    caught: list[tuple[fx.GraphModule, list[object]]] = []

    def backend(gm: fx.GraphModule, _: object) -> object:
        def call(*args: object) -> object:
            caught.append((gm, list(args)))
            return gm.forward(*args)

        return call

    torch.compiler.reset()  # else sizes that another test met count
    compiled = torch.compile(lambda x: torch.cat([x, x]).sin() * x.shape[0], backend=backend)
    for value in inputs:
        compiled(value)
    return caught[-1]


def test_every_symbolic_size_is_one_larger() -> None:
    module, inputs = graph_of(torch.randn(4, 8), torch.randn(5, 8))
    others = previous_inputs(module, inputs)
    assert [tuple(v.shape) if isinstance(v, torch.Tensor) else v for v in others] == [
        tuple(n + 1 if n == 5 else n for n in v.shape) if isinstance(v, torch.Tensor) else 6 for v in inputs
    ]
    assert module.forward(*others)[0].shape == (12, 8)


def test_inputs_of_fixed_sizes_share_no_memory_before() -> None:
    base = torch.randn(8)
    inputs = [base[:4], base[2:6], 3]
    assert share_storage(inputs)
    module = fx.GraphModule({}, fx.Graph())
    for name in "xyn":
        module.graph.placeholder(name)
    others = previous_inputs(module, inputs)
    assert not share_storage(others)
    assert [v.tolist() if isinstance(v, torch.Tensor) else v for v in others] == [[1.0] * 4, [1.0] * 4, 3]


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float64])
def test_the_kind_of_a_tensor_stays(dtype: torch.dtype) -> None:
    module, inputs = graph_of(torch.ones(4, 8, dtype=dtype), torch.ones(5, 8, dtype=dtype))
    others = previous_inputs(module, inputs)
    assert [v.dtype for v in others if isinstance(v, torch.Tensor)] == [dtype]
