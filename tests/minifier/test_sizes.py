from __future__ import annotations

import pytest
import torch
from torch import fx

from minifier.sizes import at_other_sizes


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
    others = at_other_sizes(module, inputs)
    assert others is not None
    assert [tuple(v.shape) if isinstance(v, torch.Tensor) else v for v in others] == [
        tuple(n + 1 if n == 5 else n for n in v.shape) if isinstance(v, torch.Tensor) else 6 for v in inputs
    ]
    assert module.forward(*others)[0].shape == (12, 8)


def test_a_graph_without_symbols_has_no_other_sizes() -> None:
    assert at_other_sizes(*graph_of(torch.randn(4, 8))) is None


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float64])
def test_the_kind_of_a_tensor_stays(dtype: torch.dtype) -> None:
    module, inputs = graph_of(torch.ones(4, 8, dtype=dtype), torch.ones(5, 8, dtype=dtype))
    others = at_other_sizes(module, inputs)
    assert others is not None
    assert [v.dtype for v in others if isinstance(v, torch.Tensor)] == [dtype]
