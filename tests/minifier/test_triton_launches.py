"""User-defined Triton kernels in a graph: what they write to, and their source in a repro."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import fx
from torch._higher_order_ops import triton_kernel_wrap as private
from torch._subclasses import FakeTensor

from minifier import reduce_graph
from minifier.emit import write_program
from minifier.graph_problem import Case
from minifier.simplify.simplifier import refresh_metadata
from minifier.triton_launches import launch_function, launched_kernel, replace_kernel_calls


@triton.jit
def doubled(x_ptr, out_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803 - as Triton has it
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


class Stand:
    """A kernel that runs without a GPU. As Triton's, it leaves no trace on the version of what it writes to."""

    __name__ = "stand"

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def run(x_ptr: torch.Tensor, out_ptr: torch.Tensor, n: int) -> None:
            assert grid == (1,)
            assert not isinstance(x_ptr, FakeTensor)
            out_ptr.data.flatten()[:n].copy_(2 * x_ptr.flatten()[:n])

        return run


def recorded_by_dynamo(grids: list[tuple[int, int, int]]) -> fx.GraphModule:
    """What Dynamo makes of ``doubled[grid](x, out, 8, BLOCK=16)``."""
    table = private.kernel_side_table
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["example_value"] = torch.ones(8)
    out = graph.call_function(torch.empty_like, (x,))
    out.meta["example_value"] = torch.ones(8)
    words = {
        "kernel_idx": table.add_kernel(doubled),
        "constant_args_idx": table.add_constant_args({"n": 8, "BLOCK": 16}),
        "grid": grids,
        "tma_descriptor_metadata": {},
        "kwargs": {"x_ptr": x, "out_ptr": out},
    }
    graph.call_function(private.triton_kernel_wrapper_mutation, (), words)
    graph.output((graph.call_function(torch.relu, (out,)),))
    return fx.GraphModule({}, graph)


def test_dynamos_call_of_a_kernel_becomes_one_that_can_be_written_down() -> None:
    module = replace_kernel_calls(recorded_by_dynamo([(1, 1, 1)]))
    (launch,) = [node for node in module.graph.nodes if launched_kernel(node) is not None]
    assert launched_kernel(launch) is doubled
    assert "out_ptr" in launch.target.writes
    text = write_program(module, [torch.ones(8)])
    assert "doubled[(1, 1, 1)](x_ptr=x, out_ptr=empty_like, n=8, BLOCK=16)" in text


def test_an_autotuned_kernel_with_a_grid_for_each_configuration_stays_as_it_is() -> None:
    module = recorded_by_dynamo([(1, 1, 1), (2, 1, 1)])
    assert replace_kernel_calls(module) is module


def test_what_a_kernel_writes_to_stays_with_it() -> None:
    """Nothing reads the launch: its results exist only if it stays, together with its inputs and outputs."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    out, other, sine = (graph.call_function(of, (x,)) for of in (torch.zeros_like, torch.cos, torch.sin))
    stand = launch_function(Stand(), frozenset({"out_ptr"}))
    graph.call_function(stand, (1,), {"x_ptr": sine, "out_ptr": out, "n": 4})
    graph.output((graph.call_function(torch.relu, (out,)), other))
    wanted = 2 * torch.sin(torch.tensor(0.5))

    def fails(candidate: fx.GraphModule, values: list[Any]) -> bool:
        return any(isinstance(r, torch.Tensor) and bool((r - wanted).abs().lt(1e-6).any()) for r in candidate(*values))

    reduction = reduce_graph(fx.GraphModule({}, graph), [torch.full((2, 4), 0.5)], fails)
    kept = [node.target for node in reduction.graph_module.graph.nodes if node.op == "call_function"]
    assert stand in kept
    assert torch.cos not in kept
    assert {value.shape for value in reduction.inputs} == {(2, 4)}, "sizes that the kernel has as numbers stay"


def test_metadata_are_brought_up_to_date_without_launching_anything() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.zeros(8)
    graph.call_function(launch_function(Stand(), frozenset({"out_ptr"})), (1,), {"x_ptr": x, "out_ptr": x, "n": 4})
    graph.output((x,))
    fresh = refresh_metadata(Case(fx.GraphModule({}, graph), (torch.zeros(2),)))
    assert next(iter(fresh.module.graph.nodes)).meta["val"].shape == (2,)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_launch_computes_what_dynamos_call_does() -> None:
    module = replace_kernel_calls(recorded_by_dynamo([(1, 1, 1)]))
    x = torch.arange(8.0, device="cuda")
    assert torch.equal(module(x)[0], 2 * x)
    assert torch.equal(torch.compile(module, fullgraph=True)(x)[0], 2 * x)
