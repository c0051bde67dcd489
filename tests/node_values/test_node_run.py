"""The values of nodes: what is kept of each kind of value, each node's own error, and what made a NaN."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import fx
from torch.nn import functional as F  # noqa: N812 - its usual name

from dynadiag.node_values import node_run
from dynadiag.node_values.node_run import NodeRun
from dynadiag.node_values.summary import distance, have_same_bits, summary_of
from dynadiag.node_values.writes import is_mutating
from dynadiag.torch_private.graph_calls import backward_source, operators_with_own_backward


def run(function: Callable[..., Any], *inputs: Any, named: Callable[[str], bool] = lambda _: True) -> NodeRun:
    module = fx.symbolic_trace(function)
    made = NodeRun(module, named=named, wanted=frozenset(), whole=lambda *_: None)
    with torch.no_grad():
        made.run(*inputs)
    return made


def nodes(function: Callable[..., Any], *inputs: Any) -> dict[str, dict[str, Any]]:
    return {node["node"]: node for node in run(function, *inputs).nodes}


def test_a_summary_counts_what_is_not_finite() -> None:
    summary = summary_of(torch.tensor([[1.0, -2.0, 0.0], [math.nan, math.inf, -math.inf]]))
    assert (summary["shape"], summary["dtype"], summary["stride"]) == ([2, 3], "float32", [3, 1])
    assert (summary["nan"], summary["inf"], summary["zero"]) == (1, 2, 1)
    assert (summary["min"], summary["max"], summary["mean"]) == (-2.0, 1.0, pytest.approx(-1 / 3))
    assert summary["norm"] == pytest.approx(math.sqrt(5))
    assert summary["samples"] == [1.0, -2.0, 0.0, "nan", "inf", "-inf"]
    assert summary_of(torch.tensor([59039100001]))["samples"] == [59039100001]


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor([True, False, True]),
        torch.arange(-3, 5),
        torch.zeros(0, 4),
        torch.tensor(2.5),
        torch.randn(4).to(torch.bfloat16),
        torch.randn(4, dtype=torch.complex64).conj(),
        *(torch.rand(4).to(getattr(torch, f"float8_{kind}")) for kind in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz")),
        torch.ones(4).to(torch.float8_e8m0fnu),
        *(torch.arange(4).to(dtype) for dtype in (torch.uint16, torch.uint32, torch.uint64)),
        torch.randn(3, 4).T,
        torch.ones(1).expand(5),
        torch.full((3,), math.nan),
        torch.full((3,), 3e38),
    ],
)
def test_a_value_of_any_kind_has_a_summary_without_numbers_that_json_lacks(value: torch.Tensor) -> None:
    summary = summary_of(value)
    assert summary["shape"] == list(value.shape)
    assert all(math.isfinite(each) for each in summary.values() if isinstance(each, float))
    assert summary == summary_of(value.clone(memory_format=torch.preserve_format)) | {"stride": summary["stride"]}


@given(st.lists(st.floats(width=32), max_size=200), st.data())
@settings(deadline=None)
def test_the_hash_is_that_of_the_elements(elements: list[float], data: st.DataObject) -> None:
    value = torch.tensor(elements)
    assert have_same_bits(value, value.clone())
    assert summary_of(value)["hash"] == summary_of(value.clone())["hash"]
    if elements:
        other = value.clone()
        place = data.draw(st.integers(0, len(elements) - 1))
        other[place] = 1.0 if other[place] != 1.0 else 2.0
        assert not have_same_bits(value, other)
        assert summary_of(value)["hash"] != summary_of(other)["hash"]


def test_the_distance_is_relative_to_the_largest_element_and_leaves_out_what_is_not_finite() -> None:
    wide = torch.tensor([10.0, math.inf, 1.0], dtype=torch.float64)
    assert distance(torch.tensor([10.0, math.inf, 2.0]), wide) == pytest.approx(0.1)
    assert distance(torch.tensor([1.0]), torch.tensor([1.0, 2.0], dtype=torch.float64)) is None
    assert distance(torch.tensor([math.nan]), torch.tensor([1.0], dtype=torch.float64)) is None


def test_the_error_of_a_node_is_its_own() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        narrow = x.to(torch.bfloat16)
        return narrow.float() * 2

    found = nodes(function, torch.randn(64))
    assert 1e-4 < found["to"]["off_float64"] < 1e-2
    assert found["mul"]["off_float64"] == 0.0


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b, c: a @ b,
        lambda a, b, c: F.linear(a, b.T),
        lambda a, b, c: F.linear(a, b.T, c[0]),
        lambda a, b, c: torch.addmm(c, a, b),
        lambda a, b, c: torch.bmm(a.expand(2, 512, 256), b.expand(2, 256, 768)),
        lambda a, b, c: torch.baddbmm(c.expand(2, 512, 768), a.expand(2, 512, 256), b.expand(2, 256, 768)),
    ],
)
def test_a_large_product_in_float32_is_compared_with_float64_in_some_rows_and_columns(
    function: Callable[..., Any],
) -> None:
    a, b, c = torch.randn(512, 256), torch.randn(256, 768), torch.randn(512, 768)
    made = run(function, a, b, c)
    last = made.nodes[-1]
    with torch.no_grad():
        whole = distance(function(a, b, c), function(a.double(), b.double(), c.double()))
    assert whole is not None
    assert whole / 4 < last["off_float64"] < whole * 2  # its scale is that of the rows
    assert "float64" not in last
    assert list(made.notes) == ["of a large product in float32 64 rows and 256 columns are compared with float64"]
    overflowing = run(function, a.abs(), b.abs() * 1e37, c)
    assert "overflows float32" in overflowing.nodes[-1]["cause"]


def test_a_write_to_an_input_is_seen_once_and_not_by_the_caller() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        view = x.view(-1)
        view[1:].fill_(5)
        return x * 2

    given = torch.zeros(2, 2)
    found = nodes(function, given)
    assert (found["add_"]["min"], found["add_"]["max"]) == (1, 1)
    assert (found["mul"]["min"], found["mul"]["max"]) == (2, 10)
    assert found["view"]["off_float64"] is None


def test_a_reader_of_a_buffer_reads_what_was_written_to_it() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        left = x[:2]
        left.add_(1)
        x[2:].copy_(left)
        first = x.sum()
        x.mul_(2)
        return first + x.sum() + left

    found = nodes(function, torch.zeros(4))
    assert found["copy_"]["inputs"] == ["getitem_1", "add_"]
    assert found["sum_1"]["inputs"] == ["x", "copy_"]
    assert found["sum_2"]["inputs"] == ["mul_"]
    assert found["add_1"]["inputs"] == ["add", "add_", "mul_"]


def test_random_numbers_are_drawn_as_without_us() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.5) + F.dropout(x, 0.5)

    torch.manual_seed(3)
    with torch.no_grad():
        expected = summary_of(function(torch.ones(64)))["hash"]
    after = torch.rand(1)
    torch.manual_seed(3)
    assert nodes(function, torch.ones(64))["add"]["hash"] == expected
    assert torch.equal(torch.rand(1), after)


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation:UserWarning")
def test_values_that_are_not_plain_are_said_not_to_be_summarized() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.to_sparse().to_dense() + torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize()

    made = run(function, torch.eye(3))
    assert [note for note in made.notes if "sparse_coo" in note]
    assert [note for note in made.notes if "quantized" in note]
    assert {node["node"] for node in made.nodes} >= {"to_dense", "dequantize", "add"}


def test_memory_that_nobody_wrote_to_is_zero() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x) + x

    made = run(function, torch.ones(1000))
    assert made.nodes[1]["zero"] == 1000
    assert [note for note in made.notes if "uninitialized" in note]


def test_only_named_nodes_are_described() -> None:
    made = run(lambda x: (x + 1).relu(), torch.ones(2), named=lambda name: name == "relu")
    assert [node["node"] for node in made.nodes] == ["relu"]


def test_tuples_have_no_summary_of_their_own() -> None:
    found = nodes(lambda x: torch.var_mean(x)[1] + 1, torch.randn(4))
    assert {"getitem", "add"} <= found.keys()
    assert "var_mean" not in found


@pytest.mark.parametrize(
    ("function", "value", "cause"),
    [
        (lambda x: torch.log(x), [1.0, -0.25], "log of -0.25 at [1]"),
        (lambda x: x.log(), [0.0], "log of 0 at [0]"),
        (lambda x: x / x, [1.0, 0.0], "truediv of 0 and 0 at [1]"),
        (lambda x: x * (1 / x), [0.0, 2.0], "mul of 0 and inf at [0]"),
        (lambda x: x.sqrt(), [4.0, -4.0], "sqrt of -4 at [1]"),
        (lambda x: torch.softmax(x, -1), [-math.inf, -math.inf], "softmax of a row that is -inf everywhere at [0]"),
        (lambda x: x.half(), [1e6], "half overflows float16: it is 1e+06 in float64 at [0]"),
        (lambda x: x.sum(), [math.inf, -math.inf], "sum of 0..0, with infinities"),
    ],
)
def test_what_made_the_first_number_that_is_not_finite(function: Any, value: list[float], cause: str) -> None:
    last = run(function, torch.tensor(value)).nodes[-1]
    assert last["cause"] == cause


@pytest.mark.parametrize(
    ("function", "more", "writes"),
    [
        (operator.iadd, (), True),
        (operator.iand, (), True),
        (operator.invert, (), False),
        (torch.relu_, (), True),
        (torch.isin, (), False),
        (F.relu, (), False),
        (F.relu, (True,), True),
        (torch.ops.aten.relu_, (), True),
    ],
)
def test_what_writes_to_its_input(function: Callable[..., Any], more: tuple[Any, ...], writes: bool) -> None:
    graph = fx.Graph()
    given = graph.placeholder("l_weight_")
    assert not is_mutating(given)
    assert is_mutating(graph.call_function(function, (given, *more))) == writes


def test_custom_operators_with_a_backward_of_their_own_are_known() -> None:
    @torch.library.custom_op("values_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    graph = fx.Graph()
    graph.call_function(torch.ops.values_test.twice.default, (graph.call_function(torch.relu, ()),))
    module = fx.GraphModule({}, graph)
    assert operators_with_own_backward(module) == []
    twice.register_autograd(lambda _, gradient: gradient * 2)
    assert operators_with_own_backward(module) == ["values_test::twice"]


def test_a_node_that_a_pass_put_behind_another_has_its_value() -> None:
    """A node that a pass made of the next operator does not have it."""
    graph = fx.Graph()
    product = graph.call_function(torch.ops.aten.mul.Tensor, (graph.placeholder("x"), 2))
    behind = graph.call_function(torch.ops.aten.mul.Tensor, (product, 1.01))
    later = graph.call_function(torch.ops.aten.add.Tensor, (behind, 1))
    for number, node in enumerate((product, behind, later)):
        node.meta = {
            "val": torch.ones(3),
            "original_aten": node.target,
            "seq_nr": 7,
            "stack_trace": f"line {number > 1}",
        }
    assert backward_source(product, {"x", product.name}) == product.name
    assert backward_source(behind, {"x", product.name}) == product.name
    assert backward_source(later, {"x", product.name}) is None


def test_what_came_in_has_no_cause() -> None:
    made = run(lambda x: (x + 1) * 2, torch.tensor([math.nan]))
    assert [node.get("cause") for node in made.nodes] == [None, None, None]
    assert [node["nan"] for node in made.nodes] == [1, 1, 1]


def test_a_view_that_the_layout_forbids_is_a_copy() -> None:
    """Inductor keeps what a convolution's backward reads as channels last, where AOTAutograd traced it contiguous."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(torch.ops.aten.view.default, (x, [8, 49])))
    value = torch.randn(2, 4, 7, 7)
    module = fx.GraphModule({}, graph)
    made = NodeRun(module, named=lambda _: True, wanted=frozenset({"view_default"}), whole=lambda *_: None)
    made.run(value.to(memory_format=torch.channels_last))
    assert torch.equal(made.values["view_default"], value.reshape(8, 49))


def test_an_assignment_to_a_part_has_the_value_of_the_whole() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    memory = graph.call_function(torch.empty_like, (x,))
    for half, value in ((slice(2), 1.0), (slice(2, None), math.inf)):
        graph.call_function(operator.setitem, (memory, half, value))
    graph.output(graph.call_function(operator.mul, (memory, 2)))
    made = NodeRun(fx.GraphModule({}, graph), named=lambda _: True, wanted=frozenset(), whole=lambda *_: None)
    made.run(torch.ones(4))
    found = {node["node"]: node for node in made.nodes}
    assert (found["setitem_1"]["inf"], found["setitem_1"]["shape"]) == (2, [4])
    assert found["mul"]["inputs"] == ["setitem_1"]
    assert found["empty_like"]["off_float64"] is None


def vmap_of_grad(x: torch.Tensor) -> torch.Tensor:
    return torch.func.vmap(torch.func.grad(lambda row: (row.sin() * row).sum()))(x).log()


def hooked(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.register_hook(lambda gradient: gradient * 5)
    return torch.log(y.sin() - 2)


def through_fp8(x: torch.Tensor) -> torch.Tensor:
    return (x.to(torch.float8_e4m3fn).to(torch.float32) * 2).log()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch 2.11 makes a function of a hook
@pytest.mark.parametrize("function", [vmap_of_grad, hooked, through_fp8])
def test_a_graph_runs_to_its_end(function: Any) -> None:
    graphs = []
    torch._dynamo.reset()
    x = torch.full((3, 3), -1.0, requires_grad=True)
    torch.compile(function, backend=lambda gm, _: graphs.append(gm) or gm)(x)
    made = NodeRun(graphs[0], named=lambda _: True, wanted=frozenset(), whole=lambda *_: None)
    made.run(-torch.ones(3, 3))
    assert made.nodes[-1]["nan"] == 9
    assert "log of" in made.nodes[-1]["cause"]


def test_a_value_that_cannot_be_described_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(value: torch.Tensor) -> Any:
        raise NotImplementedError("no such kernel")

    monkeypatch.setattr(node_run, "summary_of", refuse)
    made = run(lambda x: x.sin(), torch.ones(2))
    said = "is not summarized: NotImplementedError: no such kernel"
    assert list(made.notes) == [f"x {said}", f"sin {said}"]


def test_an_error_is_beside_what_the_last_place_of_the_inputs_explains() -> None:
    draws = iter(range(100))
    x = torch.arange(-200, 200).float() * 0.05
    with torch.library._scoped_library("ours_low", "FRAGMENT") as library:
        for name, function in (
            ("noise", lambda x: x + next(draws)),
            ("running_sum", lambda x: sum(x.unbind(), x.new_zeros(()))),
        ):
            library.define(f"{name}(Tensor x) -> Tensor")
            library.impl(name, function, "CompositeExplicitAutograd")
        found = {
            **nodes(lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127), x),
            **nodes(lambda x: torch.ops.ours_low.noise(x), x),
            **nodes(lambda x: torch.ops.ours_low.running_sum(x), torch.ones(1000).bfloat16()),
        }
    sensitive = [name for name, node in found.items() if "moved" in node and node["off_float64"] <= 8 * node["moved"]]
    assert [name for name, node in found.items() if "moved" in node and name not in sensitive] == ["running_sum"]
    assert sensitive == ["fake_quantize_per_tensor_affine", "noise"]


def test_an_operator_that_changes_what_its_schema_does_not_name_is_found() -> None:
    """It runs below autograd, where no version of the tensor changes."""
    with torch.library._scoped_library("ours_writes", "FRAGMENT") as library:
        for name, schema in (("hidden", "(Tensor x) -> Tensor"), ("declared", "(Tensor(a!) x) -> Tensor")):
            library.define(name + schema)
            library.impl(name, lambda x: x.add_(1) * 2, "CPU")
        library.define("sound(Tensor x) -> Tensor")
        library.impl("sound", lambda x: x * 2, "CPU")
        ours = torch.ops.ours_writes
        found = nodes(lambda x: (ours.sound(x), ours.declared(x.clone()), ours.hidden(x)), torch.ones(3))
    assert {name: node["writes"] for name, node in found.items() if "writes" in node} == {"hidden": "x"}
