from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import fx

from minifier import Budget, Reduction, reduce_graph
from minifier.emit import write_program
from minifier.graph_problem import Case
from minifier.simplify.shapes import is_corner
from tests.minifier.random_graphs import operations

aten = torch.ops.aten


def _graph(function: Callable[..., Any]) -> fx.GraphModule:
    return fx.symbolic_trace(function)


def _has(*targets: object) -> Callable[[fx.GraphModule, list[Any]], bool]:
    return lambda module, _: set(targets) <= {node.target for node in module.graph.nodes}


def _runs_and(check: Callable[..., bool]) -> Callable[[fx.GraphModule, list[Any]], bool]:
    def fails(module: fx.GraphModule, values: list[Any]) -> bool:
        module(*values)
        return check(module, *values)

    return fails


def _relu(module: fx.GraphModule) -> bool:
    return _has(torch.relu)(module, [])


def test_nothing_needed_of_the_inputs_leaves_the_plainest() -> None:
    x = torch.randn(8, 16, dtype=torch.float64, requires_grad=True).t()
    reduction = reduce_graph(_graph(lambda x: torch.relu(x.sin()).cos()), [x], _has(torch.relu))
    (value,) = reduction.inputs
    assert torch.equal(value, torch.ones(1, 1))
    assert value.is_contiguous()
    assert not value.requires_grad
    assert reduction.minimal


@pytest.mark.parametrize("needed", [2, 3, 4, 17])
def test_a_size_that_matters_is_found_by_doubling(needed: int) -> None:
    fails = _runs_and(lambda module, x: _relu(module) and x.shape[-1] >= needed)
    reduction = reduce_graph(_graph(lambda x: torch.relu(x)), [torch.randn(40, 100)], fails)
    (value,) = reduction.inputs
    assert value.shape[0] == 1
    assert needed <= value.shape[1] < 2 * needed


def test_sizes_change_together_and_where_the_graph_names_them() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        heads = x.view(6, 20, 5, 8).transpose(1, 2)
        return (heads @ w).reshape(6 * 5, 20 * 7)

    fails = _runs_and(lambda module, *_: _has("view", "transpose", operator.matmul, "reshape")(module, []))
    reduction = reduce_graph(_graph(f), [torch.randn(6, 20, 40), torch.randn(8, 7)], fails)
    assert all(value.numel() <= 8 for value in reduction.inputs)


def test_a_view_of_sizes_that_no_input_has_shrinks() -> None:
    reduction = reduce_graph(
        _graph(lambda x: aten.view.default(x, [6, 8])), [torch.randn(12, 4)], _has(aten.view.default)
    )
    (value,) = reduction.inputs
    assert value.numel() == 1


def test_sizes_of_tensors_that_the_graph_makes_shrink_too() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x.new_full((8, 8), -7.0), -1)

    def fills(module: fx.GraphModule) -> list[fx.Node]:
        return list(module.graph.find_nodes(op="call_method", target="new_full"))

    both = _runs_and(lambda module, *_: bool(fills(module)) and _has(torch.softmax)(module, []))
    reduction = reduce_graph(_graph(f), [torch.randn(3)], both)
    assert [node.args[1] for node in fills(reduction.graph_module)] == [(1, 1)]


def test_sizes_that_became_equal_by_shrinking_go_on_by_themselves() -> None:
    """Only the rows must be three; after a first step both rows and columns are three."""

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.slice_scatter(x, y, dim=0, start=1, end=3)

    fails = _runs_and(lambda module, *_: _has(torch.slice_scatter)(module, []))
    reduction = reduce_graph(_graph(f), [torch.randn(4, 6), torch.randn(2, 6)], fails)
    assert [tuple(value.shape) for value in reduction.inputs] == [(3, 1), (2, 1)]


def test_one_size_that_matters_keeps_no_other_along() -> None:
    """Even if few sizes of the others fail, so that they cannot be shrunk one by one."""
    x = torch.randn(3, 16, 16)
    fails = _runs_and(lambda module, x: _relu(module) and x.shape[0] == 3 and x[0].numel() in (1, 9, 256))
    reduction = reduce_graph(_graph(lambda x: torch.relu(x)), [x], fails)
    assert tuple(reduction.inputs[0].shape) == (3, 1, 1)


def test_what_is_a_corner_of_inputs_that_pass_is_not_tried() -> None:
    """As a window that reaches over the end of rows: most of a size matters, and two columns."""
    tried: list[tuple[int, ...]] = []

    def fails(module: fx.GraphModule, values: list[Any]) -> bool:
        tried.append(tuple(values[0].shape))
        return _relu(module) and values[0].shape[-2] >= 7 and values[0].shape[-1] >= 2

    reduction = reduce_graph(_graph(lambda x: (torch.relu(x),)), [torch.randn(1, 5, 7, 8)], fails)
    assert tuple(reduction.inputs[0].shape) == (1, 1, 7, 2)
    assert len(set(tried)) == 9, tried
    assert tried.count((1, 5, 7, 8)) == 1


def test_of_a_large_size_that_matters_whole_few_parts_are_tried() -> None:
    tried: list[int] = []

    def fails(module: fx.GraphModule, values: list[Any]) -> bool:
        tried.append(values[0].numel())
        return _relu(module) and values[0].numel() >= 1000

    reduction = reduce_graph(_graph(lambda x: torch.relu(x)), [torch.randn(1024)], fails)
    assert reduction.inputs[0].numel() == 1024
    assert [size for size in tried if size < 1024] == [1, 2, 3, 512]


def test_only_fewer_of_the_same_values_for_the_same_graph_are_a_corner() -> None:
    x = torch.arange(12.0).view(3, 4)
    relu = _graph(lambda x: torch.relu(x))
    whole = Case(relu, (x, 5))
    assert is_corner(Case(relu, (x[:2, :1].clone(), 5)), whole)
    assert not is_corner(Case(relu, (x.clone(), 5)), whole)
    assert not is_corner(Case(relu, (x[:2, :1] + 1, 5)), whole)
    assert not is_corner(Case(relu, (x.view(6, 2)[:, :1].clone(), 5)), whole)
    assert not is_corner(Case(relu, (x[:2, :1].clone(), 4)), whole)
    assert not is_corner(Case(_graph(lambda x: torch.sin(x)), (x[:2, :1].clone(), 5)), whole)
    assert not is_corner(Case(relu, (x[:2, :1].double(), 5)), whole)


def test_what_was_simplified_is_not_tried_again_before_the_sweep() -> None:
    stages: list[str] = []
    reduction = reduce_graph(
        _graph(lambda x: torch.relu(x)),
        [torch.randn(8)],
        _has(torch.relu),
        progress=lambda step: None if step.known else stages.append(step.stage),
    )
    assert reduction.minimal
    assert "sweep" not in stages, stages


def test_a_view_of_a_size_that_is_computed_by_hand_shrinks_too() -> None:
    reduction = reduce_graph(_graph(lambda x: x.view(12, 4).cos()), [torch.randn(6, 8)], _has("view"))
    assert reduction.inputs[0].numel() <= 8


def test_indices_stay_inside_the_smaller_table() -> None:
    def f(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.embedding(index, table)

    fails = _runs_and(lambda module, *_: len(operations(module)) == 1)
    reduction = reduce_graph(_graph(f), [torch.randn(50, 4), torch.arange(40, 50)], fails)
    assert all(value.numel() == 1 for value in reduction.inputs)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_is_asked_for_no_row_that_is_not_there() -> None:
    def f(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.embedding(index, table) + torch.ones(4, device="cuda")

    fails = _runs_and(lambda module, table, *_: _has(torch.nn.functional.embedding)(module, []) and table.is_cuda)
    values = [torch.randn(50, 4, device="cuda"), torch.arange(40, 50, device="cuda")]
    reduction = reduce_graph(_graph(f), values, fails)
    torch.cuda.synchronize()
    assert all(value.numel() == 1 and value.is_cuda for value in reduction.inputs)


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("ones", lambda x: True),
        ("zeros", lambda x: bool(x.min() == 0)),
        ("arange", lambda x: x.flatten()[1:].gt(x.flatten()[:-1]).all() and x.min() == 0),
        ("full", lambda x: bool((x < 0).any())),
        ("randn", lambda x: bool((x < 0).any() and (x > 0).any())),
        ("real", lambda x: 123.0 in x),
    ],
)
def test_values_are_as_plain_as_the_failure_lets_them(name: str, needed: Callable[[torch.Tensor], bool]) -> None:
    x = (
        torch.tensor([-1.0, 123.0, 5.0])
        if name in ("full", "randn", "real")
        else torch.tensor([0.0, 7.0, 9.0]) + (name == "ones")
    )
    fails = _runs_and(lambda module, x: x.shape == (3,) and bool(needed(x)))
    reduction = reduce_graph(_graph(lambda x: torch.relu(x)), [x], fails)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        plain = {"zeros": torch.zeros(3), "ones": torch.ones(3), "arange": torch.arange(3.0), "randn": torch.randn(3)}
    plain["full"] = torch.full((3,), -1.0)
    assert torch.equal(reduction.inputs[0], plain.get(name, x))


def test_the_one_value_that_matters_is_left_wherever_it_is() -> None:
    x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 500.0, 5.0], [6.0, 7.0, 8.0]])
    fails = _runs_and(lambda module, x: bool((x > 100).any()))
    (found,) = reduce_graph(_graph(lambda x: torch.relu(x)), [x], fails).inputs
    assert found.tolist() == [[500.0]]


def test_integers_that_must_differ_do_not_make_numbers_random() -> None:
    def pick(left: torch.Tensor, right: torch.Tensor, table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return table[left], table[right]

    def fails(module: fx.GraphModule, values: Sequence[Any]) -> bool:
        one, other = module(*values)
        return bool((one != other).any())

    draw = torch.Generator().manual_seed(0)
    values = [torch.tensor([1, 2]), torch.tensor([3, 0]), torch.randn(4, 3, generator=draw)]
    reduction = reduce_graph(_graph(pick), values, fails)
    assert [value.tolist() for value in reduction.inputs] == [[1], [0], [[0.0], [1.0]]]


def test_what_lies_between_elements_is_as_plain_as_they_are() -> None:
    x = torch.rand(10)[::2]
    fails = _runs_and(lambda module, x: x.stride() == (2,) and x.numel() == 5)
    (found,) = reduce_graph(_graph(lambda x: torch.relu(x)), [x], fails).inputs
    assert found.as_strided((9,), (1,)).tolist() == [1.0] * 9


def test_a_nan_that_matters_is_all_that_is_left() -> None:
    x = torch.rand(3, 4)
    x[1, 2] = float("nan")
    reduction = reduce_graph(_graph(lambda x: torch.relu(x)), [x], _runs_and(lambda _, x: bool(x.isnan().any())))
    assert torch.equal(reduction.inputs[0].isnan(), torch.tensor([[True]]))


def test_one_input_that_matters_does_not_keep_the_others() -> None:
    def fails(module: fx.GraphModule, values: list[Any]) -> bool:
        return any(isinstance(v, torch.Tensor) and 5.0 in v for v in values) and _has(torch.add)(module, values)

    x, y = torch.full((3,), 5.0), torch.tensor([9.0, 8.0, 7.0], dtype=torch.float64)
    reduction = reduce_graph(_graph(lambda x, y: torch.add(x, y)), [x, y], fails)
    assert len(reduction.inputs) == 1  # one and the same input serves for both
    assert torch.equal(reduction.inputs[0], torch.tensor([5.0]))


@pytest.mark.parametrize(
    "keeps",
    [
        lambda x: x.dtype is torch.bfloat16,
        lambda x: not x.is_contiguous(),
        lambda x: x.requires_grad,
        lambda x: x.stride(0) == 0 and x.shape[0] > 1,
        lambda x: x.dtype is torch.complex64,
    ],
)
def test_what_the_failure_needs_is_kept(keeps: Callable[[torch.Tensor], bool]) -> None:
    starts = [
        torch.randn(4, 6, dtype=torch.bfloat16),
        torch.randn(4, 6).t(),
        torch.randn(4, requires_grad=True),
        torch.randn(1, 4).expand(4, 4),
        torch.randn(4, dtype=torch.complex64),
    ]
    (start,) = [x for x in starts if keeps(x)][:1]
    graph = _graph(lambda x: torch.sin(torch.cos(x)))
    reduction = reduce_graph(graph, [start], lambda gm, xs: bool(xs) and bool(keeps(xs[0])) and len(operations(gm)) > 0)
    assert keeps(reduction.inputs[0])
    assert reduction.inputs[0].numel() <= 8


def _sharing(one: torch.Tensor, two: torch.Tensor) -> bool:
    return one.untyped_storage().data_ptr() == two.untyped_storage().data_ptr()


def test_inputs_of_one_storage_share_it_as_long_as_the_failure_needs_it() -> None:
    base = torch.randn(8)
    graph = _graph(lambda a, b: a.add_(1) + b)

    def needs_sharing(module: fx.GraphModule, values: list[Any]) -> bool:
        return len(values) == 2 and _sharing(*values) and _has("add_", operator.add)(module, values)

    kept = reduce_graph(graph, [base[:6], base[2:]], needs_sharing)
    assert _sharing(*kept.inputs)
    assert all(value.numel() == 1 for value in kept.inputs)
    free = reduce_graph(graph, [base[:6], base[2:]], _has("add_", operator.add))
    assert all(value.numel() == 1 for value in free.inputs)


def test_what_is_done_in_place_need_not_be_returned() -> None:
    def f(x: torch.Tensor) -> object:
        first = x.mul_(2)
        return first, x.add_(x.flip(0)), torch.tanh(x)

    both = _runs_and(lambda m, x: _has("mul_", "add_")(m, []))
    reduction = reduce_graph(_graph(f), [torch.randn(2)], both)
    (returned,) = reduction.graph_module.graph.output_node().args[0]
    assert returned.target in ("mul_", "add_")


def test_a_list_that_an_operation_takes_has_no_element_more_than_needed() -> None:
    def f(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.sin(), y, torch.tanh(z)])

    reduction = reduce_graph(_graph(f), [torch.randn(2)] * 3, _has(torch.cat))
    (joined,) = operations(reduction.graph_module)
    assert len(joined.args[0]) == len(reduction.inputs) == 1
    both = _runs_and(lambda module, *_: _has(torch.cat, torch.tanh)(module, []))
    reduction = reduce_graph(_graph(f), [torch.randn(2)] * 3, both)
    tanh, joined = operations(reduction.graph_module)
    assert joined.args[0] == [tanh]


def test_of_an_operator_with_a_result_for_each_element_one_may_be_left() -> None:
    def f(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        halves = torch._foreach_div([x, y, z], [z, x, y])
        return halves[0], halves[2] + 1

    def divides_by_x(module: fx.GraphModule, *_: Any) -> bool:
        return any("x" in map(str, node.args[1]) for node in operations(module) if node.target is torch._foreach_div)

    reduction = reduce_graph(_graph(f), [torch.rand(2), torch.rand(2), torch.rand(2)], _runs_and(divides_by_x))
    (divide,) = (node for node in operations(reduction.graph_module) if node.target is torch._foreach_div)
    assert [len(listed) for listed in divide.args] == [1, 1]


def test_outputs_that_something_reads_are_kept_only_if_they_matter() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.relu(x)
        return y, torch.sin(y)

    def outputs(reduction: Reduction) -> int:
        return len(reduction.graph_module.graph.output_node().args[0])

    both = _has(torch.relu, torch.sin)
    assert outputs(reduce_graph(_graph(f), [torch.randn(2)], both)) == 1
    needed = reduce_graph(_graph(f), [torch.randn(2)], lambda gm, xs: both(gm, xs) and len(gm(*xs)) == 2)
    assert outputs(needed) == 2


def test_dynamic_sizes_become_numbers_unless_the_failure_needs_them() -> None:
    def f(x: torch.Tensor, n: int) -> torch.Tensor:
        return torch.relu(x).view(n, x.size(1)).cos()

    static = reduce_graph(_graph(f), [torch.randn(4, 6), 4], _has("view"))
    assert [node.target for node in operations(static.graph_module)] == ["view"]
    assert [type(v) for v in static.inputs] == [torch.Tensor]
    dynamic = reduce_graph(_graph(f), [torch.randn(4, 6), 4], _has("view", "size"))
    assert [node.target for node in operations(dynamic.graph_module)] == ["size", "view"]


class _Linear(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(6, 5)
        self.register_buffer("table", torch.arange(8.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (torch.relu(self.linear(x)).sum() + self.table).cos()


def test_modules_and_constants_become_functions_and_inputs() -> None:
    linear = torch.nn.functional.linear
    graph = fx.symbolic_trace(_Linear())
    reduction = reduce_graph(graph, [torch.randn(3, 6)], lambda gm, _: _has(linear)(gm, []) or _has("linear")(gm, []))
    assert [node.target for node in operations(reduction.graph_module)] == [linear]
    assert len(reduction.graph_module.graph.find_nodes(op="get_attr")) == 0
    assert all(value.numel() == 1 for value in reduction.inputs)


def test_a_constant_that_matters_stays_exact() -> None:
    def fails(module: fx.GraphModule, values: list[Any]) -> bool:
        return any(torch.equal(b, torch.arange(8.0)) for b in module.buffers()) and _has(operator.add)(module, values)

    reduction = reduce_graph(fx.symbolic_trace(_Linear()), [torch.randn(3, 6)], fails)
    assert torch.equal(dict(reduction.graph_module.named_buffers())["table"], torch.arange(8.0))
    assert [node.target for node in operations(reduction.graph_module)] == [operator.add]


def test_fractions_become_one() -> None:
    reduction = reduce_graph(_graph(lambda x: torch.clamp(x, 0.25, 7.0)), [torch.randn(2)], _has(torch.clamp))
    assert operations(reduction.graph_module)[0].args[1:] == (1.0, 7.0)


def test_metadata_fit_the_smaller_inputs() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    graph = _graph(lambda x: torch.relu(torch.sin(x)))
    with FakeTensorMode():
        for node in graph.graph.nodes:
            node.meta["val"] = torch.empty(4, 8)
    reduction = reduce_graph(graph, [torch.randn(4, 8)], _has(torch.relu))
    shapes = {tuple(n.meta["val"].shape) for n in reduction.graph_module.graph.nodes if n.op != "output"}
    assert shapes == {(1, 1)}


def test_an_operation_that_simpler_inputs_make_unnecessary_goes() -> None:
    """It is 1-minimal at the end, not only before the inputs were simplified."""

    def fails(module: fx.GraphModule, values: list[Any]) -> bool:
        return _has(torch.relu)(module, values) and (_has(torch.sin)(module, values) or values[0].numel() == 1)

    reduction = reduce_graph(_graph(lambda x: torch.relu(torch.sin(x))), [torch.randn(6)], fails)
    assert [node.target for node in operations(reduction.graph_module)] == [torch.relu]


@pytest.mark.parametrize("calls", range(4, 30, 5))
def test_a_budget_is_kept_while_inputs_are_simplified(calls: int) -> None:
    graph = _graph(lambda x, y: torch.relu(torch.sin(x) @ y))
    fails = _has(torch.relu)
    reduction = reduce_graph(graph, [torch.randn(4, 5), torch.randn(5, 6)], fails, budget=Budget(calls=calls))
    assert reduction.trials <= calls
    assert fails(reduction.graph_module, reduction.inputs)
    again = reduce_graph(graph, [torch.randn(4, 5), torch.randn(5, 6)], fails)
    assert reduction.minimal == (again.trials <= calls)


@pytest.mark.filterwarnings("ignore")
def test_a_wrong_relu_in_inductor() -> None:
    from torch._inductor import config

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (torch.relu(x.sin() @ w) + 1).softmax(-1)

    def fails(module: fx.GraphModule, values: list[Any]) -> bool:
        torch.compiler.reset()
        expected = module(*values)
        with config.patch({"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}):
            actual = torch.compile(module)(*values)
        return not all(torch.allclose(a, b, atol=1e-4) for a, b in zip(actual, expected, strict=True))

    graph = _graph(f)
    whole = graph.graph.output_node()
    whole.args = ((whole.args[0],),)
    graph.recompile()
    reduction = reduce_graph(graph, [torch.randn(4, 6), torch.randn(6, 8)], fails)
    assert [node.target for node in operations(reduction.graph_module)] == [torch.relu]
    assert torch.equal(reduction.inputs[0], torch.ones(1, 1))


def _overlap(one: torch.Tensor, two: torch.Tensor) -> bool:
    spans = [
        {int(i) for i in torch.arange(10_000).as_strided(t.shape, t.stride(), t.storage_offset()).flatten()}
        for t in (one, two)
    ]
    return _sharing(one, two) and bool(spans[0] & spans[1])


@pytest.mark.parametrize(
    "views",
    [
        lambda base: (base, base[1:]),
        lambda base: (base[:6], base.t()[:, 2:8]),
        lambda base: (base, base[:, ::3]),
        lambda base: (base[1], base[:, 1]),
        lambda base: (base[2:, 2:], base[3:, 1:].t()),
    ],
)
def test_inputs_of_one_storage_shrink_together(
    views: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]],
) -> None:
    base = torch.randn(10, 12, dtype=torch.float64)
    graph = _graph(lambda a, b: (a.add_(1), b.sin()))

    def fails(module: fx.GraphModule, values: list[Any]) -> bool:
        return len(values) == 2 and _overlap(*values) and _has("add_", "sin")(module, values)

    reduction = reduce_graph(graph, list(views(base)), fails)
    assert all(value.numel() <= 3 and value.dtype is torch.float32 for value in reduction.inputs), reduction.inputs
    assert all((value == 1).all() for value in reduction.inputs)


def test_a_view_stays_a_view_of_the_other_input() -> None:
    """AOTAutograd treats inputs on one storage by the tensor that they are views of."""
    base = torch.randn(6, 4)

    def fails(module: fx.GraphModule, values: list[Any]) -> bool:
        return len(values) == 2 and values[1]._base is values[0] and _has("add_", "sin")(module, values)

    reduction = reduce_graph(_graph(lambda a, b: (a.add_(1), b.sin())), [base, base[1:]], fails)
    assert reduction.inputs[1]._base is reduction.inputs[0]
    assert all(value.numel() == 1 for value in reduction.inputs[1:])


def test_what_reads_no_input_and_is_one_number_becomes_a_constant() -> None:
    """A NaN that only a maximum shows: where it comes from does not matter."""
    graph = fx.Graph()
    grid = graph.call_function(torch.ones, (2, 3))
    angle = graph.call_function(torch.atan2, (grid, grid))
    lift = graph.call_function(torch.acosh, (graph.call_function(torch.log, (angle,)),))
    graph.output((graph.call_method("amax", (lift, -1)),))

    def fails(module: fx.GraphModule, _: list[Any]) -> bool:
        return _has("amax")(module, []) and bool(module()[0].isnan().all())

    reduction = reduce_graph(fx.GraphModule(torch.nn.Module(), graph), [], fails)
    assert [node.target for node in operations(reduction.graph_module)] == [torch.full, "amax"]


def test_a_private_argument_that_only_places_a_warning_is_not_written() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    soft = graph.call_function(torch.nn.functional.softmax, (x,), {"dim": -1, "_stacklevel": 5})
    graph.output((soft,))
    text = write_program(fx.GraphModule(torch.nn.Module(), graph), [torch.ones(2)])
    assert "softmax(x, dim=-1)" in text
