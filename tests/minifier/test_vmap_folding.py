"""A vmap in Dynamo's graph: one operation on a subgraph, reduced inside and written as a program calls it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from minifier import reduce_graph
from minifier.emit import write_program
from minifier.vmap_folding import fold_vmaps, vmap_call


def recorded(function: Callable[..., Any], *inputs: torch.Tensor) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    """What Dynamo makes of a function, and the graph's inputs in its own order."""
    found: list[tuple[fx.GraphModule, list[torch.Tensor]]] = []

    def backend(gm: fx.GraphModule, _: Any) -> Callable[..., Any]:
        def called(*args: torch.Tensor) -> Any:
            found.append((gm, list(args)))
            return gm(*args)

        return called

    torch._dynamo.reset()
    torch.compile(function, backend=backend, fullgraph=True)(*inputs)
    return found[0]


def attend(q: torch.Tensor, k: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scores = torch.softmax(q @ k.T, -1) * w
    return torch.atan(scores).sum(0), scores.amax()


def heads(q: torch.Tensor, k: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    one, other = torch.vmap(attend, in_dims=(0, 1, None), out_dims=(1, 0))(q + 1, k, w)
    return one.mean(-1) * other.sum()


def nested(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.vmap(lambda row: torch.vmap(lambda item: torch.atan(item * w) + row.sum())(row))(x)


def shape_of(*sizes: int) -> torch.Tensor:
    return torch.linspace(-1, 1, torch.Size(sizes).numel()).reshape(sizes)


def fails_at_an_arc_tangent_in_a_vmap(module: fx.GraphModule, values: list[Any]) -> bool:
    """Fails like a backend that inspects Dynamo's graph."""
    graph, _ = recorded(module, *values)
    return {"atan", "_vmap_increment_nesting"} <= {getattr(node.target, "__name__", "") for node in graph.graph.nodes}


def test_it_is_one_operation_with_the_same_results() -> None:
    for function, inputs in (
        (heads, (shape_of(3, 5, 6), shape_of(5, 3, 6), shape_of(5))),
        (nested, (shape_of(3, 4), torch.tensor(2.0))),
    ):
        module, values = recorded(function, *inputs)
        folded = fold_vmaps(module)
        assert vmap_call in {node.target for node in folded.graph.nodes}
        torch.testing.assert_close(folded(*values), module(*values))


def test_it_is_written_with_what_is_said_of_its_dimensions() -> None:
    module, values = recorded(heads, shape_of(3, 5, 6), shape_of(5, 3, 6), shape_of(5))
    text = write_program(fold_vmaps(module), values, call="print($function($arguments))")
    assert "vmap = torch.vmap(mapped, in_dims=(0, 1, None), out_dims=(1, 0))(child, k, w)" in text
    assert "batch_dim" not in text


def test_what_is_inside_is_reduced_to_the_operation_at_fault() -> None:
    module, values = recorded(heads, shape_of(3, 5, 6), shape_of(5, 3, 6), shape_of(5))
    reduction = reduce_graph(fold_vmaps(module), values, fails_at_an_arc_tangent_in_a_vmap)
    text = write_program(reduction.graph_module, reduction.inputs, call="$function($arguments)")
    assert "def mapped(x):\n        return torch.atan(x)\n\n    return torch.vmap(mapped)(scores)" in text
    assert [tuple(value.shape) for value in reduction.inputs] == [(1, 1, 1)]


def test_inside_another_it_is_reduced_as_well() -> None:
    module, values = recorded(nested, shape_of(3, 4), torch.tensor(2.0))
    reduction = reduce_graph(fold_vmaps(module), values, fails_at_an_arc_tangent_in_a_vmap)
    text = write_program(reduction.graph_module, reduction.inputs, call="$function($arguments)")
    assert text.count("torch.vmap(") == 2
    assert "torch.atan(" in text
    assert ".sum(" not in text


def test_one_that_is_mixed_with_a_gradient_stays_as_it_is() -> None:
    def gradients(x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(torch.func.grad(lambda item: torch.sin(item).sum()))(x)

    module, _ = recorded(gradients, shape_of(3, 4))
    assert fold_vmaps(module) is module
