"""Bytes and operations compared to figures worked out by hand, for any sizes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dynadiag.kernels.cost import RooflineCost, estimate_cost, roofline_bound
from dynadiag.kernels.graph_parser import parse_graph
from dynadiag.kernels.module_parser import parse_module

SIZE = st.integers(1, 300)
few = settings(max_examples=25)


def _cost(
    arguments: dict[str, str], nodes: dict[str, tuple[str, str]], code: str, *, products: bool = True, **hints: int
) -> RooflineCost:
    """The estimate for the last call in `code`, which computes `nodes` (name -> type, call) of a graph."""
    given_ = ", ".join(f'{name}: "{kind}"' for name, kind in arguments.items())
    typed = {name: f'{name}: "{kind}"' if kind else name for name, (kind, _) in nodes.items()}
    body = "".join(f"        {typed[name]} = {call}\n" for name, (_, call) in nodes.items())
    graph = parse_graph(f"class M(torch.nn.Module):\n    def forward(self, {given_}):\n{body}        return ()\n")
    asserts = "".join(
        f"        assert_size_stride({name}, ({kind[kind.index('[') + 1 : kind.index(']')]}, ), (1, ))\n"
        for name, kind in arguments.items()
    )
    module = parse_module(
        f"# AOT ID: ['0_inference']\n{code.split('---')[0]}\n    def call():\n{asserts}{code.split('---')[-1]}"
    )
    return estimate_cost(module, module.calls[-1], tuple(nodes), graph, hints, products=products)


def _kernel(parameters: str, *lines: str) -> str:
    text = (
        f"cpp_fused_0 = async_compile.cpp_pybinding([], r'''\nextern \"C\"  void  kernel({parameters})\n{{}}\n''')\n---"
    )
    return text + "".join(f"        {line}\n" for line in lines)


@few
@given(SIZE, SIZE, SIZE)
def test_a_matrix_product(m: int, n: int, k: int) -> None:
    code = "        extern_kernels.mm(a, b, out=buf0)\n"
    nodes = {"mm": (f"f32[{m}, {n}]", "torch.ops.aten.mm.default(a, b)")}
    cost = _cost({"a": f"f32[{m}, {k}]", "b": f"f32[{k}, {n}]"}, nodes, code)
    assert cost == RooflineCost(4 * (m * k + k * n), 4 * m * n, 2 * m * n * k, "f32")


@few
@given(SIZE, SIZE)
def test_a_kernel_computes_no_more_than_it_goes_over(rows: int, columns: int) -> None:
    """The second kernel of a sum in two steps also lists the nodes of the first."""
    source = "def triton_per_sum_1(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK):\n    pass\n"
    code = (
        f"triton_per_sum_1 = async_compile.triton('triton_per_sum_1', '''\n{source}''', device_str='cuda')\n---"
        f"        triton_per_sum_1.run(a, buf0, {columns}, {rows}, stream=stream0)\n"
    )
    nodes = {
        "exp": (f"f32[{rows * 100}, {columns}]", "torch.ops.aten.exp.default(a)"),
        "sum_1": (f"f32[{columns}]", "torch.ops.aten.sum.dim_IntList(exp, [0])"),
    }
    cost = _cost({"a": f"f32[{rows * 100}, {columns}]"}, nodes, code, products=False)
    assert cost.flops == 2 * rows * columns


@few
@given(SIZE)
def test_a_matrix_times_itself_is_read_once(n: int) -> None:
    nodes = {"addmm": (f"f32[{n}, {n}]", "torch.ops.aten.addmm.default(c, a, a)")}
    code = "        extern_kernels.addmm(c, a, a, alpha=1, beta=1, out=buf0)\n"
    cost = _cost({"c": f"f32[{n}]", "a": f"f32[{n}, {n}]"}, nodes, code)
    assert cost == RooflineCost(4 * (n + n * n), 4 * n * n, 2 * n**3, "f32")


@few
@given(SIZE, SIZE)
def test_pointwise_with_a_row_for_all_columns(m: int, n: int) -> None:
    code = _kernel(
        "const float* in_ptr0, const float* in_ptr1, bool* out_ptr0",
        f"buf0 = empty_strided_cpu(({m}, {n}), ({n}, 1), torch.bool)",
        "cpp_fused_0(a, b, buf0)",
    )
    nodes = {
        "add": (f"f32[{m}, {n}]", "torch.ops.aten.add.Tensor(a, b)"),
        "gt": (f"b8[{m}, {n}]", "torch.ops.aten.gt.Scalar(add, 0)"),
    }
    cost = _cost({"a": f"f32[{m}, {n}]", "b": f"f32[{n}]"}, nodes, code)
    assert cost == RooflineCost(4 * (m * n + n), m * n, 2 * m * n)


@few
@given(SIZE, SIZE)
def test_a_softmax(m: int, n: int) -> None:
    whole, rows = f"f32[{m}, {n}]", f"f32[{m}, 1]"
    code = _kernel(
        "const float* in_ptr0, float* out_ptr0, float* out_ptr1, float* out_ptr2",
        f"buf0 = empty_strided_cpu(({m}, 1), (1, 1), torch.float32)",
        f"buf1 = empty_strided_cpu(({m}, 1), (1, 1), torch.float32)",
        f"buf2 = empty_strided_cpu(({m}, {n}), ({n}, 1), torch.float32)",
        "cpp_fused_0(a, buf0, buf1, buf2)",
    )
    nodes = {
        "amax": (rows, "torch.ops.aten.amax.default(a, [-1], True)"),
        "sub": (whole, "torch.ops.aten.sub.Tensor(a, amax)"),
        "exp": (whole, "torch.ops.aten.exp.default(sub)"),
        "sum_1": (rows, "torch.ops.aten.sum.dim_IntList(exp, [-1], True)"),
        "div": (whole, "torch.ops.aten.div.Tensor(exp, sum_1)"),
    }
    cost = _cost({"a": whole}, nodes, code)
    assert cost == RooflineCost(4 * m * n, 4 * (2 * m + m * n), 5 * m * n)


@few
@given(SIZE, SIZE, st.integers(2, 50))
def test_a_reduction_over_a_symbol(m: int, n: int, s0: int) -> None:
    code = _kernel(
        "const half* in_ptr0, float* out_ptr0",
        f"buf0 = empty_strided_cpu(({m}, ), (1, ), torch.float32)",
        "buf9 = empty_strided_cpu((1, ), (1, ), torch.float32)",
        "cpp_fused_0(a, buf0)",
    )
    nodes = {"sum_1": (f"f32[{m}]", "torch.ops.aten.sum.dim_IntList(a, [1])")}
    cost = _cost({"a": f"f32[{m}, {n}*s0]"}, nodes, code, s0=s0)
    assert cost == RooflineCost(4 * m * n * s0, 4 * m, m * n * s0)
    assert _cost({"a": f"f32[{m}, {n}*s0]"}, nodes, code).bytes_read is None, (
        "without the symbol's value nothing is known"
    )


@few
@given(st.integers(1, 4), st.integers(1, 16), st.integers(1, 16), st.integers(1, 5), st.integers(5, 20))
def test_a_convolution(batch: int, channels: int, filters: int, side: int, size: int) -> None:
    out = size - side + 1
    image, weight = f"f32[{batch}, {channels}, {size}, {size}]", f"f32[{filters}, {channels}, {side}, {side}]"
    call = "torch.ops.aten.convolution.default(x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)"
    nodes = {"convolution": (f"f32[{batch}, {filters}, {out}, {out}]", call)}
    cost = _cost({"x": image, "w": weight}, nodes, "        buf0 = extern_kernels.convolution(x, w, stride=(1, 1))\n")
    read = batch * channels * size**2 + filters * channels * side**2
    written = batch * filters * out**2
    assert cost == RooflineCost(4 * read, 4 * written, 2 * written * channels * side**2, "f32")


@few
@given(st.integers(1, 4), st.integers(1, 16), st.integers(1, 16), st.integers(1, 5), st.integers(5, 20))
def test_a_convolution_backward(batch: int, channels: int, filters: int, side: int, size: int) -> None:
    out = size - side + 1
    kinds = {
        "g": f"f32[{batch}, {filters}, {out}, {out}]",
        "x": f"f32[{batch}, {channels}, {size}, {size}]",
        "w": f"f32[{filters}, {channels}, {side}, {side}]",
    }
    rest = "[0], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, {}, False]"
    call = f"torch.ops.aten.convolution_backward.default(g, x, w, {rest})"
    for both in (True, False):
        nodes = {"back": ("", call.format(both)), "getitem": (kinds["x"], "back[0]")}
        cost = _cost(kinds, nodes, "        buf0 = torch.ops.aten.convolution_backward.default(g, x, w)\n")
        assert cost.flops == (1 + both) * 2 * batch * filters * out**2 * channels * side**2


@few
@given(st.integers(1, 4), SIZE, SIZE)
def test_attention_with_one_tensor_for_all_three(heads: int, length: int, width: int) -> None:
    kind = f"f32[1, {heads}, {length}, {width}]"
    call = "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default(q, q, q)"
    nodes = {"attention": (kind, call)}
    code = "        buf0 = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default(q, q, q)\n"
    cost = _cost({"q": kind}, nodes, code)
    assert cost.flops == 4 * heads * length * length * width
    assert cost.bytes_read == 4 * heads * length * width


@few
@given(SIZE, SIZE)
def test_a_view_moves_and_computes_nothing_by_itself(m: int, n: int) -> None:
    code = _kernel(
        "const float* in_ptr0, float* out_ptr0",
        f"buf0 = empty_strided_cpu(({m}, {n}), ({n}, 1), torch.float32)",
        f"cpp_fused_0(reinterpret_tensor(a, ({m}, {n}), (1, {m}), 0), buf0)",
    )
    nodes = {
        "permute": (f"f32[{m}, {n}]", "torch.ops.aten.permute.default(a, [1, 0])"),
        "sin": (f"f32[{m}, {n}]", "torch.ops.aten.sin.default(permute)"),
    }
    assert _cost({"a": f"f32[{n}, {m}]"}, nodes, code) == RooflineCost(4 * m * n, 4 * m * n, m * n)


def test_a_library_call_whose_nodes_are_not_known_has_no_figures() -> None:
    assert _cost({"a": "f32[4, 4]"}, {}, "        extern_kernels.mm(a, a, out=buf0)\n") == RooflineCost()


@few
@given(st.integers(1, 10**9), st.integers(1, 10**9), st.floats(0.1, 1000))
def test_the_bound_is_that_of_the_roofline(moved: int, flops: int, balance: float) -> None:
    assert roofline_bound(RooflineCost(moved, 0, flops), balance) == (
        "memory" if flops / moved < balance else "compute"
    )
    assert roofline_bound(RooflineCost(moved, 0, None), balance) is None
    assert roofline_bound(RooflineCost(moved, 0, flops), None) is None
