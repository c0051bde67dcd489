"""Graphs as Dynamo and AOTAutograd make them: forward and backward, dynamic sizes, subgraphs, writes, vmap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch._functorch.aot_autograd import aot_module_simplified
from torch._subclasses.fake_tensor import FakeTensor

from minifier import Reduction, reduce_graph
from minifier.emit import write_program
from minifier.graph_problem import Case
from minifier.simplify.simplifier import refresh_metadata

pytestmark = pytest.mark.filterwarnings("ignore")

Graphs = dict[str, tuple[fx.GraphModule, list[Any]]]


def _layer(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    h = torch.nn.functional.layer_norm(x @ w + b, (8,))
    y = torch.relu(h).view(x.shape[0] * 2, 4)
    z = torch.nn.functional.dropout(y.softmax(-1), 0.1)
    return (z * y).sum(0).view(2, 2).t()


def _hint(size: Any) -> int:
    return size if isinstance(size, int) else size.node.hint


def _real(value: Any) -> Any:
    """A real value for an argument of a compiler: fake tensors become real, symbols become numbers."""
    if not isinstance(value, FakeTensor):
        return value if isinstance(value, torch.Tensor) else _hint(value)
    shape, strides = [_hint(s) for s in value.shape], [_hint(s) for s in value.stride()]
    made = torch.empty_strided(shape, strides, dtype=value.dtype)
    return made.copy_(torch.randn(shape) if value.is_floating_point() else torch.ones(shape))


def _compiled(function: Callable[..., Any], values: list[Any], dynamic: bool = False) -> Graphs:
    """The graphs of each stage, with inputs for them."""
    found: Graphs = {}

    def keeping(stage: str) -> Callable[..., Any]:
        def keep(module: fx.GraphModule, example: list[Any]) -> Any:
            found[stage] = (module, list(example))
            return module.forward

        return keep

    def backend(module: fx.GraphModule, example: list[Any]) -> Any:
        found["dynamo"] = (module, list(example))
        return aot_module_simplified(module, example, keeping("forward"), keeping("backward"))

    torch.compiler.reset()
    result = torch.compile(function, backend=backend, dynamic=dynamic)(*values)
    if result.requires_grad:
        result.sum().backward()
    return {stage: (module, [_real(value) for value in example]) for stage, (module, example) in found.items()}


def _arguments() -> list[Any]:
    return [torch.randn(6, 5, requires_grad=True), torch.randn(5, 8, requires_grad=True), torch.randn(8)]


def _targets(module: fx.GraphModule) -> list[str]:
    return [str(node.target) for node in module.graph.nodes if node.op in ("call_function", "call_method")]


def _keeping(*wanted: str) -> Callable[[fx.GraphModule, list[Any]], bool]:
    def fails(module: fx.GraphModule, values: list[Any]) -> bool:
        torch.fx.Interpreter(module).run(*values)
        return all(any(word in target for target in _targets(module)) for word in wanted)

    return fails


def _runs_with(target: str) -> Callable[[fx.GraphModule, list[Any]], bool]:
    def fails(module: fx.GraphModule, values: list[Any]) -> bool:
        torch.fx.Interpreter(module).run(*values)
        return target in _targets(module)

    return fails


def _plain(reduction: Reduction) -> list[str]:
    return [target for target in _targets(reduction.graph_module) if "getitem" not in target]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("stage", ["dynamo", "forward", "backward"])
def test_any_operation_of_any_stage_can_be_had_alone(stage: str, dynamic: bool) -> None:
    module, values = _compiled(_layer, _arguments(), dynamic)[stage]
    wanted = {t for t in _targets(module) if not any(word in t for word in ("getitem", "sym_size", "size", "built-in"))}
    assert len(wanted) >= 4
    for target in wanted:
        reduction = reduce_graph(module, values, _runs_with(target))
        assert _plain(reduction) == [target]
        assert reduction.minimal
        assert all(v.numel() <= 8 for v in reduction.inputs if isinstance(v, torch.Tensor))
        compile(write_program(reduction.graph_module, reduction.inputs), "repro.py", "exec")


def test_symbolic_metadata_stay_where_a_symbol_is_needed() -> None:
    module, values = _compiled(_layer, _arguments(), dynamic=True)["forward"]

    def fails(module: fx.GraphModule, values: list[Any]) -> bool:
        views = [node for node in module.graph.nodes if "view" in str(node.target)]
        return any(isinstance(size, fx.Node) for node in views for size in node.args[1])

    reduction = reduce_graph(module, values, fails)
    (view,) = [node for node in reduction.graph_module.graph.nodes if "view" in str(node.target)]
    assert any(isinstance(size, torch.SymInt) for size in view.meta["val"].shape)
    reduction.graph_module(*reduction.inputs)


def _cond(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda v: v.sin() + 1, lambda v: v.cos(), (x * 2,)).exp()


def _scan(x: torch.Tensor) -> torch.Tensor:
    from torch._higher_order_ops import scan

    carry, rows = scan(lambda carry, row: (carry + row, carry * row), torch.zeros(4), x.sin(), dim=0)
    return (rows * carry).cos()


def _flex(x: torch.Tensor) -> torch.Tensor:
    from torch.nn.attention.flex_attention import flex_attention

    bias = torch.arange(16.0)
    y = x.sin().reshape(1, 1, 16, 16)
    return flex_attention(y, y, y, score_mod=lambda score, b, h, q, k: score + bias[q - k]).cos()


def _checkpoint(x: torch.Tensor) -> torch.Tensor:
    inside = torch.utils.checkpoint.checkpoint(lambda v: torch.relu(v.sin()).cos(), x + 1, use_reentrant=False)
    return inside.exp() + x


def _bodies(module: fx.GraphModule) -> list[fx.GraphModule]:
    return [child for _, child in module.named_children() if isinstance(child, fx.GraphModule)]


def _holds(body: fx.GraphModule, words: str) -> bool:
    return all(word in str(body.graph) for word in words.split())


@pytest.mark.parametrize(
    ("function", "name", "inside", "gone", "shape"),
    [
        (_cond, "cond", "sin", "add", (3, 4)),
        (_scan, "scan", "mul add", "nothing", (3, 4)),
        (_flex, "flex_attention", "add", "nothing", (16, 16)),
        (_checkpoint, "tag_activation_checkpoint", "relu", "cos", (3, 4)),
    ],
)
def test_a_higher_order_operation_keeps_of_its_subgraphs_what_the_failure_needs(
    function: Callable[..., Any], name: str, inside: str, gone: str, shape: tuple[int, ...]
) -> None:
    module, values = _compiled(function, [torch.randn(shape)])["dynamo"]
    whole = _keeping(name)

    def fails(module: fx.GraphModule, values: list[Any]) -> bool:
        bodies = _bodies(module)
        worked = all(any(node.op.startswith("call_") for node in body.graph.nodes) for body in bodies)
        return whole(module, values) and worked and any(_holds(body, inside) for body in bodies)

    reduction = reduce_graph(module, values, fails)
    assert _plain(reduction) == [name]
    assert not any(gone in str(body.graph) for body in _bodies(reduction.graph_module))
    source = write_program(reduction.graph_module, reduction.inputs, call="result = $function($arguments)")
    scope: dict[str, Any] = {}
    exec(compile(source, "repro.py", "exec"), scope)
    torch.compiler.reset()
    found: list[fx.GraphModule] = []
    backend: Callable[..., Any] = lambda gm, _: found.append(gm) or gm.forward  # noqa: E731  two words are enough
    arguments = [v for k, v in scope.items() if isinstance(v, (torch.Tensor, int)) and k != "result"]
    torch.compile(scope["f"], backend=backend, fullgraph=True)(*arguments)
    assert name in " ".join(_targets(found[0]))


def _cond_of_many(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda v, m: v.sin() @ m + b, lambda v, m: (v @ m).cos() - b, (x * 2, w.exp()))


def _checkpoint_of_many(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    block = lambda v, m: torch.relu(v) @ m + b  # noqa: E731  as short as the case
    return torch.utils.checkpoint.checkpoint(block, x + 1, w.exp(), use_reentrant=False).sum()


@pytest.mark.parametrize(
    ("function", "name", "inside"), [(_cond_of_many, "cond", "sin"), (_checkpoint_of_many, "tag_activation", "relu")]
)
def test_what_no_subgraph_reads_is_not_handed_to_it(function: Callable[..., Any], name: str, inside: str) -> None:
    module, values = _compiled(function, [torch.randn(4, 4), torch.randn(4, 4), torch.randn(4)])["dynamo"]
    whole = _keeping(name)

    def fails(module: fx.GraphModule, values: list[Any]) -> bool:
        return whole(module, values) and any(_holds(body, inside) for body in _bodies(module))

    reduction = reduce_graph(module, values, fails)
    reads = [len(body.graph.find_nodes(op="placeholder")) for body in _bodies(reduction.graph_module)]
    assert set(reads) == {1}
    tensors = [value for value in reduction.inputs if isinstance(value, torch.Tensor) and value.dtype != torch.bool]
    assert len(tensors) == 1
    reduction.graph_module(*reduction.inputs)


def test_metadata_of_a_while_loop_can_be_brought_up_to_date() -> None:
    from torch._higher_order_ops.while_loop import while_loop

    def counted(x: torch.Tensor) -> torch.Tensor:
        return while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v.cos()), (torch.tensor(0), x.sin()))[1].sum()

    module, _ = _compiled(counted, [torch.randn(3, 4)])["dynamo"]
    updated = refresh_metadata(Case(module, (torch.randn(2, 2),)))
    (sine,) = (node for node in updated.module.graph.nodes if node.target == "sin")
    assert sine.meta["example_value"].shape == (2, 2)


def test_what_a_vmap_does_goes_with_it() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda row: (row * row.sum()).sin())(x.exp()).cos()

    module, values = _compiled(f, [torch.randn(3, 4)])["dynamo"]
    alone = reduce_graph(module, values, _keeping("cos"))
    assert len(_plain(alone)) == 1
    whole = reduce_graph(module, values, _keeping("sin"), simplify_inputs=False)
    assert not any(word in target for target in _plain(whole) for word in ("exp", "cos"))
    whole.graph_module(*whole.inputs)
