from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import fx

from minifier import reduce_graph
from minifier.emit import EmitError, write_program
from minifier.emit.expressions import target_source
from minifier.emit.identifiers import NameAllocator
from minifier.emit.tensor_literals import exact_expression, factory_call
from minifier.tensors import copy_values
from tests.minifier.random_graphs import inputs, random_graph

_CALL = "result = $function($arguments)\narguments = [$arguments]"


def _run(source: str) -> dict[str, Any]:
    scope: dict[str, Any] = {"__name__": "__main__"}
    with torch.random.fork_rng():
        exec(compile(source, "repro.py", "exec"), scope)
    return scope


def _bits(value: Any) -> Any:
    """Something that is equal only for the same bits, shapes, strides and types."""
    if isinstance(value, (tuple, list)):
        return [_bits(v) for v in value]
    if not isinstance(value, torch.Tensor):
        return value
    plain = value.detach().resolve_conj().contiguous().reshape(-1).view(torch.uint8).tolist()
    return (value.dtype, tuple(value.shape), value.stride(), value.requires_grad, plain)


def _check(graph: fx.GraphModule, values: list[Any], **options: Any) -> str:
    """Emit, run, and compare inputs and results bit by bit. Returns the source."""
    source = write_program(graph, values, call=_CALL, **options)
    scope = _run(source)
    mine = copy_values(values)
    with torch.random.fork_rng():
        expected = graph(*mine)
    if isinstance(expected, (tuple, list)) and len(expected) == 1:
        expected = expected[0]
    assert _bits(scope["result"]) == _bits(expected)
    assert [_bits(v) for v in scope["arguments"]] == [_bits(v) for v in mine]
    assert all(line == line.rstrip() for line in source.splitlines())
    return source


def _traced(function: Callable[..., Any]) -> fx.GraphModule:
    return fx.symbolic_trace(function)


def test_reads_as_a_person_would_write_it() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (torch.relu(x) @ w)[:, 1:].softmax(dim=-1) * 2

    source = write_program(_traced(f), [torch.zeros(4, 8), torch.ones(8, 3)])
    assert source == (
        "import torch\n"
        "\n"
        "\n"
        "def f(x, w):\n"
        "    relu = torch.relu(x)  # f32[4, 8]\n"
        "    matmul = relu @ w  # f32[4, 3]\n"
        "    getitem = matmul[:, 1:]  # f32[4, 2]\n"
        "    softmax = getitem.softmax(dim=-1)  # f32[4, 2]\n"
        "    return softmax * 2  # f32[4, 2]\n"
        "\n"
        "\n"
        "x = torch.zeros(4, 8)\n"
        "w = torch.ones(8, 3)\n"
        "\n"
        "print(torch.compile(f)(x, w))\n"
    )


@given(st.integers(0, 10**6), st.integers(1, 30))
@settings(max_examples=40, deadline=None)
def test_random_graphs_compute_the_same(seed: int, size: int) -> None:
    _check(random_graph(size, seed), inputs())


def _operators(x: torch.Tensor, n: int) -> Any:
    y = -x + 2 - (3 - x) * n / 4 // 1 % 5
    z = (2**x) @ x.transpose(0, 1)
    return y[None, ..., ::2], z > 1, ~(z <= 0.5), x.size(0) * n, torch.sum(z), (-1.5) * x, abs(x)


def _methods(x: torch.Tensor, n: int) -> Any:
    a, b = torch.split(x, [1, 2], dim=0)
    a = a.to(torch.float64).view(3, 1).clone(memory_format=torch.contiguous_format)
    return a, b.masked_fill(b > 0, float("-inf")), torch.zeros(2, device="cpu", dtype=torch.bfloat16), x.shape[0]


@pytest.mark.parametrize("function", [_operators, _methods, None])
def test_operators_methods_and_writes(function: Callable[..., Any] | None) -> None:
    graph = fx.GraphModule({}, _written_graph()) if function is None else _traced(function)
    source = _check(graph, [torch.randn(3, 3, generator=torch.Generator().manual_seed(3)), 4])
    assert function is not None or "    zeros *= x" in source


def _written_graph() -> fx.Graph:
    graph = fx.Graph()
    x, _ = graph.placeholder("x"), graph.placeholder("n")
    y = graph.call_function(torch.zeros, (3, 3))
    graph.call_function(operator.setitem, (y, 0, 1.5))
    graph.call_method("add_", (y, x))
    graph.call_function(operator.imul, (y, x))
    part = graph.call_function(operator.getitem, (x, (slice(None), slice(None, 2))))
    graph.call_function(operator.setitem, (y, (slice(None), slice(1, None)), part))
    graph.output((y,))
    return graph


def test_aten_operations_by_their_overload() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    def f(x: torch.Tensor, w: torch.Tensor) -> Any:
        return torch.nn.functional.layer_norm(x @ w, (5,)).relu(), torch.topk(x, 2)

    values = [torch.randn(4, 6), torch.randn(6, 5)]
    graph = make_fx(f)(*values)
    source = _check(_flat(graph), values)
    assert "torch.ops.aten.mm.default(" in source
    assert "torch.ops.aten.native_layer_norm.default(" in source


def _flat(graph: fx.GraphModule) -> fx.GraphModule:
    graph.graph.set_codegen(fx.graph.CodeGen())
    graph.recompile()
    return graph


def _captured(
    function: Callable[..., Any], values: list[Any], **options: Any
) -> list[tuple[fx.GraphModule, list[Any]]]:
    """The graphs that Dynamo hands to a backend."""
    found: list[tuple[fx.GraphModule, list[Any]]] = []

    def backend(module: fx.GraphModule, example: list[Any]) -> Any:
        found.append((module, list(example)))
        return module.forward

    torch.compiler.reset()
    torch.compile(function, backend=backend, **options)(*values)
    return found


def _cond(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda v: v.sin() + 1, lambda v: v.cos(), (x,))


def _scan(x: torch.Tensor) -> Any:
    from torch._higher_order_ops import scan

    return scan(lambda carry, row: (carry + row, carry * row), torch.zeros(4), x, dim=0)


def _flex(x: torch.Tensor) -> torch.Tensor:
    from torch.nn.attention.flex_attention import flex_attention

    return flex_attention(x, x, x, score_mod=lambda score, b, h, q, k: score + (q - k))


def _checkpoint(x: torch.Tensor) -> torch.Tensor:
    return torch.utils.checkpoint.checkpoint(lambda v: torch.relu(v.sin()).cos(), x, use_reentrant=False)


@pytest.mark.parametrize(
    ("function", "shape"), [(_cond, (3, 4)), (_scan, (3, 4)), (_flex, (1, 1, 16, 16)), (_checkpoint, (3, 4))]
)
@pytest.mark.filterwarnings("ignore")
def test_higher_order_operations_with_functions_inside(function: Callable[..., Any], shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    graph, values = _captured(function, [x])[0]
    if function is _flex:  # the block mask is made by vmap beside it: that is left out first
        small = reduce_graph(graph, values, lambda gm, _: "flex_attention" in str(gm.graph), simplify_inputs=False)
        graph, values = small.graph_module, small.inputs
    source = _check(graph, values)
    assert source.count("def ") >= 2
    assert len(_captured(_run(source)["f"], values)) == 1


def test_names_of_dynamo_become_the_users() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.nn.Linear(4, 4)

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return self.fc(hidden).relu()

    (pair,) = _captured(Net(), [torch.randn(2, 4)])
    source = _check(*pair)
    assert "def f(weight, bias, hidden)" in source or "def f(hidden, weight, bias)" in source
    assert "torch.nn.functional.linear(" in source or "torch._C._nn.linear(" in source


def test_an_autocast_of_dynamo_is_a_statement_again() -> None:
    def mixed(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            low = x @ x
            with torch.autocast("cpu", enabled=False):
                high = x @ x
        return low + high / 2.0

    ((graph, values),) = _captured(mixed, [torch.ones(2, 2)])
    source = _check(graph, values)
    assert '    with torch.autocast("cpu", dtype=torch.bfloat16):\n        low = x @ x' in source
    assert '        with torch.autocast("cpu", enabled=False):\n            high = x @ x' in source
    assert "\n    truediv = high / 2.0  # f32[2, 2]\n    return low + truediv" in source
    assert "_autocast" not in source
    enter, *_ = graph.graph.find_nodes(op="call_function", target=torch.amp._enter_autocast)
    graph.graph.erase_node(next(node for node in graph.graph.nodes if node.args[:1] == (enter,)))
    with torch.autocast("cpu", enabled=False):  # after which the one that nothing leaves is off again
        assert "torch.amp.autocast_mode._enter_autocast(" in write_program(graph, values)


def test_names_are_valid_and_hide_nothing() -> None:
    names = NameAllocator({"given"})
    wanted = ["class", "sum", "torch", "given", "primals_1", "arg0_1", "L_x_", "L_x_", "relu_7", "a b", "7", "ünï", "f"]
    made = [names.input_name(name) for name in wanted] + [names.value_name(name) for name in wanted]
    assert len(set(made)) == len(made)
    assert all(name.isidentifier() and name.isascii() for name in made)
    assert not {"class", "sum", "torch", "given", "f"} & set(made)


@pytest.mark.parametrize(
    ("torchs", "plain"), [("l_self_buffers_seen_", "seen"), ("L_self_modules_fc_parameters_weight_", "weight")]
)
def test_what_a_module_holds_goes_by_its_own_name(torchs: str, plain: str) -> None:
    assert NameAllocator().input_name(torchs) == plain


_dtypes = st.sampled_from(
    [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.bool, torch.complex64]
)
_shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)


@given(_shapes, _dtypes, st.integers(0, 10**6), st.sampled_from(["small", "wild", "zeros", "ones", "arange", "same"]))
@settings(max_examples=150, deadline=None)
def test_values_are_exact(shape: tuple[int, ...], dtype: torch.dtype, seed: int, how: str) -> None:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=draw)
    if how == "wild":
        x = torch.randint(0, 2**31 - 1, shape, generator=draw, dtype=torch.int32).view(torch.float32) * 2
        x = torch.where(x.abs() < 1e-10, torch.tensor(-0.0), x)
    elif how == "same":
        x = torch.full(shape, 2.7)
    elif how != "small":
        x = torch.arange(x.numel()).reshape(shape).float() if how == "arange" else getattr(torch, how)(shape)
    x = x.to(dtype)
    source = write_program(_traced(lambda x: x), [x], call=_CALL)
    result = _run(source)["result"]
    assert _bits(result) == _bits(x) or torch.equal(result.isnan(), x.isnan())


@pytest.mark.parametrize(
    "value",
    [
        torch.randn(5, 3).t(),
        torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1),
        torch.randn(1, 4).expand(3, 4),
        torch.randn(8, 8)[::2, 1::3],
        torch.randn(10).as_strided((4, 3), (2, 1), 1),
        torch.randn(2, 2, requires_grad=True),
        torch.nn.Parameter(torch.ones(3)),
        torch.randn(3, dtype=torch.complex64).conj(),
        torch.empty(0, 3),
        torch.tensor(float("nan")),
        torch.tensor([float("inf"), -0.0, 1e-45]),
        torch.arange(300.0).sin(),
        torch.randn(4).to(torch.float8_e4m3fn),
    ],
)
def test_layouts_and_odd_values(value: torch.Tensor) -> None:
    source = write_program(_traced(lambda x: x), [value], call=_CALL)
    result = _run(source)["arguments"][0]
    assert _bits(result) == _bits(value)
    assert type(result) is type(value)
    assert max(len(line) for line in source.splitlines()) <= 120


def test_random_inputs_are_drawn_in_order() -> None:
    torch.manual_seed(0)
    values = [torch.randn(2, 3), torch.tensor([0.25, -1.0]), torch.randn(4, dtype=torch.float32).to(torch.bfloat16)]
    source = _check(_traced(lambda x, y, z: (x, y, z)), values)
    assert source.count("torch.randn(") == 2
    assert source.count("torch.manual_seed(0)") == 1


def test_inputs_of_one_storage_share_it() -> None:
    base = torch.arange(12.0)
    values = [base[2:8], base.view(3, 4), base.as_strided((2, 2), (4, 1), 1)]
    source = write_program(_traced(lambda a, b, c: a.add_(1) + b.sum() + c.sum()), values, call=_CALL)
    a, b, c = _run(source)["arguments"]
    assert a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() == c.untyped_storage().data_ptr()
    assert [v.storage_offset() for v in (a, b, c)] == [2, 0, 1]
    assert "a = b.view(-1)[2:8]" in source


def test_a_view_of_another_input_is_written_as_a_slice_of_it() -> None:
    x = torch.arange(24.0).view(4, 6)
    values = [x, x[1:], x[:, 2:4], x.t(), x.t()[1:], x[2]]
    source = _check(_traced(lambda x, a, b, c, d, e: (x + 1, a + 1, b + 1, c + 1, d + 1, e + 1)), values)
    assert "a = x[1:]\nb = x[:, 2:4]\nc = x.t()\nd = x.t()[1:]\ne = x[2]\n" in source


class _Constants(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(8.0).sin())
        self.weight = torch.nn.Parameter(torch.arange(3.0))
        self.norm = torch.nn.BatchNorm1d(2)
        self.act = torch.nn.LeakyReLU(0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.norm(x)).sum() + self.table * self.weight.sum()


def test_constants_are_exact_and_modules_are_made() -> None:
    for mode in (True, False):
        source = _check(fx.symbolic_trace(_Constants().train(mode)), [torch.randn(5, 2)])
        assert "table = torch.tensor([" in source
        assert "act = torch.nn.LeakyReLU(negative_slope=0.2)" in source


def test_what_cannot_be_written_is_refused_by_name() -> None:
    def mine(x: torch.Tensor) -> torch.Tensor:
        return x

    graph = fx.Graph()
    graph.output((graph.call_function(mine, (graph.placeholder("x"),)),))
    with pytest.raises(EmitError, match="mine is not part of torch"):
        write_program(fx.GraphModule({}, graph), [torch.zeros(1)])

    class Own(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    holder = torch.nn.Sequential(Own())
    graph = fx.Graph()
    graph.output((graph.call_module("0", (graph.placeholder("x"),)),))
    with pytest.raises(EmitError, match=r"Own is not a plain one of torch\.nn"):
        write_program(fx.GraphModule(holder, graph), [torch.zeros(1)])


def test_text_in_a_graph_is_only_ever_text() -> None:
    evil = '"); import os; os.abort() #\n"""'
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.nn.functional.pad, (x, (1, 1)), {"mode": evil})
    graph.output((y,))
    module = fx.GraphModule({}, graph)
    from minifier.emit.functions import write_function

    lines = write_function(module, "f", NameAllocator()).lines
    calls = [node.func for node in ast.walk(ast.parse("\n".join(lines))) if isinstance(node, ast.Call)]
    assert [call.attr for call in calls if isinstance(call, ast.Attribute)] == ["pad"]
    assert len(calls) == 1
    graph.call_function(torch.relu, (x,), {"input=0) or print": 1})
    with pytest.raises(EmitError, match="not one"):
        write_function(module, "f", NameAllocator())


def test_the_caller_gives_the_call_and_what_comes_before() -> None:
    source = write_program(
        _traced(lambda x: torch.relu(x)),
        [torch.ones(2)],
        call="expected = $function($arguments)\nassert helper(expected)",
        preamble="def helper(x):\n    return bool((x == 1).all())",
    )
    _run(source)
    assert source.index("import torch") < source.index("def helper") < source.index("def f(") < source.index("\ny =")


def test_helpers_that_nobody_needs_are_not_imported() -> None:
    assert "import base64" not in _check(_traced(lambda x: x + 1), [torch.ones(2)])
    assert "import base64\nimport zlib\nimport torch\n" in write_program(
        _traced(lambda x: x + 1), [torch.arange(99.0).sin()]
    )


def test_exact_and_recognised_agree_with_torch() -> None:
    assert factory_call(torch.zeros(2, 2)) == "torch.zeros(2, 2)"
    assert factory_call(torch.full((3,), 0.1)) == "torch.full((3,), 0.1)"
    assert factory_call(torch.tensor([0.5, 0.25])) is None
    assert exact_expression(torch.tensor([0.1, 1e-3])) == "torch.tensor([0.1, 0.001])"


def test_a_graph_that_raises_uncompiled_is_written_without_shapes() -> None:
    graph = fx.Graph()
    graph.output((graph.call_method("view", (graph.placeholder("x"), 7)),))
    text = write_program(fx.GraphModule({}, graph), [torch.zeros(2)])
    assert ".view(7)\n" in text


def test_a_base_is_written_as_nobodys_view() -> None:
    """A compiler may treat a view differently, and rows of a reshaped tensor are views of the original."""
    base = torch.arange(4.0).reshape(2, 2).clone()
    scope = _run(write_program(_traced(lambda x, y: x + y[0]), [base, base[1:]], call=_CALL))
    one, other = scope["arguments"]
    assert one._base is None
    assert other._base is one


def test_zeros_without_storage_stay_so() -> None:
    zeros = torch._efficientzerotensor((2, 3))
    scope = _run(write_program(_traced(lambda x: x + 1), [zeros], call=_CALL))
    assert scope["arguments"][0]._is_zerotensor()
    assert scope["arguments"][0].shape == (2, 3)
    assert copy_values([zeros])[0]._is_zerotensor()


def test_attributes_of_the_preamble_take_no_names() -> None:
    graph = _traced(lambda x: torch.tanh(x) + 1)
    source = write_program(graph, [torch.ones(2)], preamble="print(torch.ops.aten.tanh)")
    assert "    tanh = torch.tanh(x)" in source
    assert write_program(graph, [torch.ones(2)], preamble="tanh = 3").count(" tanh2 = ") == 1


def test_what_dynamo_calls_of_torch_is_named_as_a_user_calls_it() -> None:
    assert target_source(torch._C._set_grad_enabled) == "torch.set_grad_enabled"
    assert target_source(torch.linalg.pinv) == "torch.linalg.pinv"
    assert target_source(torch.fft.rfft) == "torch.fft.rfft"
    assert target_source(torch.special.erfcx) == "torch.special.erfcx"
