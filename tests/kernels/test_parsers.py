"""Parsers of what torch writes: arguments, sizes, printed graphs, and arbitrary text in their place."""

from __future__ import annotations

import ast
import operator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.kernels.call_nodes import parse_operations
from dynadiag.kernels.graph_parser import (
    SourceLine,
    evaluate_size,
    names_in,
    parse_graph,
    parse_tensor,
    split_arguments,
)
from dynadiag.kernels.module_parser import Buffer, parse_module

_PLAIN = st.from_regex(r"[a-z]\w{0,5}", fullmatch=True)
_ARGUMENT = st.recursive(_PLAIN, lambda inner: st.lists(inner, max_size=3).map(lambda part: f"f({', '.join(part)})"))

_GRAPH = """class GraphModule(torch.nn.Module):
    def forward(self, primals_1: "f32[4, s0][s0, 1]cpu", primals_2: "Sym(s0)"):
        # File: /home/x/net.py:7 in forward, code: y = x.sin()
        sin: "f32[4, s0][s0, 1]cpu" = torch.ops.aten.sin.default(primals_1);  primals_1 = None

        # File: /home/x/net.py:8 in forward, code: a, b = y.view(2, -1).max(0)
        view: "f32[2, 2*s0]" = torch.ops.aten.view.default(sin, [2, -1]);  sin = None
        max_1 = torch.ops.aten.max.dim(view, 0);  view = None
        getitem: "f32[2*s0]" = max_1[0]
        getitem_1: "i64[2*s0]" = max_1[1];  max_1 = None
        return (getitem, None, getitem_1)
"""

_BRANCHES = """class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "f32[4]"):
        # File: /home/x/net.py:9 in f, code: return torch.cond(...)
        true_graph_0 = self.true_graph_0
        cond = torch.ops.higher_order.cond(arg0_1, true_graph_0, (arg0_1,));  true_graph_0 = None
        getitem: "f32[4]" = cond[0];  cond = None
        return (getitem,)

    class true_graph_0(torch.nn.Module):
        def forward(self, arg0_1: "f32[4]"):
            # File: /home/x/net.py:7 in yes, code: return x.sin()
            sin: "f32[4]" = torch.ops.aten.sin.default(arg0_1)
            inner_0 = self.inner_0
            cond = torch.ops.higher_order.cond(sin, inner_0, (sin,));  inner_0 = None
            return (sin,)

        class inner_0(torch.nn.Module):
            def forward(self, arg0_1: "f32[4]"):
                mul: "f32[4]" = torch.ops.aten.mul.Tensor(arg0_1, 2)
                return [mul]
"""


@given(st.lists(_ARGUMENT, min_size=1, max_size=5))
def test_arguments_are_split_at_their_own_level(given_arguments: list[str]) -> None:
    text = f"call({', '.join(given_arguments)}, )  # rest (of, the, line)"
    assert split_arguments(text, len("call(")) == given_arguments


@given(st.integers(0, 10**6), st.integers(1, 1000), st.integers(0, 1000))
def test_sizes_are_read_as_python_would(s0: int, u1: int, number: int) -> None:
    for expression in (f"{number} + s0*u1", f"(s0 + {number})//u1", "s0 % u1 - 3", "-s0 + 2*(u1 + 1)"):
        value = eval(expression, {"s0": s0, "u1": u1})  # noqa: S307 - of the test's own text
        assert evaluate_size(expression, {"s0": s0, "u1": u1}) == value


@given(st.text(max_size=40))
def test_whatever_stands_there_is_no_size_or_a_number(text: str) -> None:
    assert evaluate_size(text, {"s0": 3}) is None or isinstance(evaluate_size(text, {"s0": 3}), int)


def test_a_size_is_not_evaluated() -> None:
    for text in ("__import__('os').getpid()", "(9**9)**9", "s0 // 0", "2" * 9999, "[1]", "True"):
        assert evaluate_size(text, {"s0": 3}) is None


def test_a_size_is_parsed_again_where_the_parser_counted_another_threads_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    parse, failed = ast.parse, list[str]()

    def parse_or_fail(source: str, mode: str) -> ast.AST:
        if not failed:
            failed.append(source)
            raise SystemError("AST constructor recursion depth mismatch (before=84, after=76)")
        return parse(source, mode=mode)

    monkeypatch.setattr("ast.parse", parse_or_fail)
    assert evaluate_size("2*s0", {"s0": 3}) == 6
    assert failed == ["2*s0"]


@given(st.text(max_size=300))
def test_any_text_is_a_module_a_graph_and_a_list_of_operations(text: str) -> None:
    parse_module(text)
    parse_graph(text)
    parse_operations(text)


def test_names_are_neither_attributes_nor_text() -> None:
    assert names_in("torch.ops.aten.add(a, b[0], 'c', other = d)") == ["torch", "a", "b", "other", "d"]


def test_a_printed_graph_is_read_back() -> None:
    graph = parse_graph(_GRAPH)
    assert list(graph.nodes) == ["primals_1", "primals_2", "sin", "view", "max_1", "getitem", "getitem_1"]
    assert graph.nodes["sin"].source_line == SourceLine("/home/x/net.py", 7)
    assert graph.nodes["sin"].inputs == ("primals_1",)
    assert [name for name, node in graph.nodes.items() if node.computes] == ["sin", "max_1"]
    assert graph.returns == {"": ("getitem", None, "getitem_1")}
    assert graph.root("view") == "sin"
    assert graph.root("getitem") == "getitem"  # a result of its own, not a view of one
    assert graph.nodes["getitem"].tensor is not None
    assert graph.nodes["getitem"].tensor.element_count({"s0": 5}) == 10


def test_a_graph_is_read_with_those_of_its_branches() -> None:
    """Nodes of a branch have its name before their own: the name of Inductor's buffers, by which the code is tied."""
    graph = parse_graph(_BRANCHES)
    sin, mul = graph.nodes["true_graph_0_sin"], graph.nodes["true_graph_0_inner_0_mul"]
    assert (sin.printed_name, sin.source_line, sin.inputs) == (
        "sin",
        SourceLine("/home/x/net.py", 7),
        ("true_graph_0_arg0_1",),
    )
    assert "sin" not in graph.nodes
    assert _BRANCHES.splitlines()[mul.line - 1].strip().startswith("mul:")
    assert mul.text == "torch.ops.aten.mul.Tensor(true_graph_0_inner_0_arg0_1, 2)"
    assert graph.enclosing_nodes(mul.subgraph) == ("true_graph_0_cond", "cond")
    assert graph.enclosing_nodes("") == ()
    assert graph.returns == {
        "": ("getitem",),
        "true_graph_0": ("true_graph_0_sin",),
        "true_graph_0_inner_0": ("true_graph_0_inner_0_mul",),
    }


def test_the_line_of_a_node_in_a_checkpoint() -> None:
    tagged = _GRAPH.replace("# File", "# ac_graph_id: 2 - PREFER_RECOMPUTE File").replace("y = x.sin", "y = x.cos")
    node = parse_graph(tagged).nodes["sin"]
    assert (node.source_line, node.source_text) == (SourceLine("/home/x/net.py", 7), "y = x.cos()")


_CALLS = """
def while_loop_body_graph_0(args):
    while_loop_body_graph_0_arg0_1, = args
    return (while_loop_body_graph_0_buf0, )

def partition_0(args):
    return (buf9, )

class Runner:
    def call(self, args):
        buf3 = [None] * 1
        if buf2.item():
            true_graph_0_args = [buf1, arg0_1]
            buf3 = true_graph_0(true_graph_0_args)
        else:
            false_graph_0_args = [buf1, arg0_1]
            buf3 = false_graph_0(false_graph_0_args)
        buf5[0] = buf4
        while_loop_body_graph_0_args = [buf5[0], arg0_1]
        (buf5[0],) = while_loop_body_graph_0(while_loop_body_graph_0_args)
        return (buf5, )
"""


def test_what_subgraphs_are_given_and_return() -> None:
    module = parse_module(_CALLS)
    assert module.subgraph_inputs == {
        "true_graph_0": ("buf2", "buf1", "arg0_1"),
        "false_graph_0": ("buf1", "arg0_1"),
        "while_loop_body_graph_0": ("buf4", "arg0_1"),
    }
    assert module.subgraph_results == {"buf3": "false_graph_0", "buf5": "while_loop_body_graph_0"}
    assert module.returns == {
        "while_loop_body_graph_0": ("while_loop_body_graph_0_buf0",),
        "partition_0": ("buf9",),
        "": ("buf5",),
    }


def test_a_branch_is_chosen_by_a_selector_too() -> None:
    """From torch 2.15 on."""
    chosen = "        buf3_selector = int(buf2.item())\n        if buf3_selector == 0:"
    assert (
        parse_module(_CALLS.replace("        if buf2.item():", chosen)).subgraph_inputs
        == parse_module(_CALLS).subgraph_inputs
    )


def test_types_as_graphs_print_them() -> None:
    tensor = parse_tensor("bf16[2, s0*s1][s0, 1]cuda:0")
    assert tensor is not None
    assert (tensor.item_size, tensor.element_count({"s0": 3, "s1": 4}), tensor.element_count({})) == (2, 24, None)
    assert parse_tensor("Sym(s0)") is None


def test_a_librarys_call_is_the_gpus_only_in_a_module_that_chooses_one() -> None:
    guarded = "def call(args):\n    with torch.cuda._DeviceGuard(0):\n        extern_kernels.mm(a, b, out=buf0)\n"
    assert parse_module(guarded).selects_gpu
    assert not parse_module(guarded.replace("with torch.cuda._DeviceGuard(0)", "if True")).selects_gpu


def test_a_kernel_has_the_lines_of_its_definition_and_of_its_source() -> None:
    text = "import x\n\nk = async_compile.triton('k', '''\n\nimport triton\ndef k():\n    pass\n''')\nafter()\n"
    definition = parse_module(text).definitions["k"]
    lines = text.splitlines()
    assert lines[definition.line - 1].startswith("k = async_compile")
    assert "\n".join(lines[definition.first_line - 1 : definition.last_line]) + "\n" == definition.source
    assert definition.source == "import triton\ndef k():\n    pass\n"


def test_what_is_asserted_of_a_tensor_is_known_of_it() -> None:
    """Torch asserts sizes of inputs and of library results; from 2.15 on dtypes too, and several at once."""
    lines = (
        "assert_size_stride(a, (2, s0), (s0, 1), 'input')",
        "assert_tensor_metadata(b, (3, ), (1, ), torch.bool, 'f')",
        "assert_size_stride_grouped((c, d), ((4, ), (5, 6)), ((1, ), (6, 1)), 'input')",
    )
    module = parse_module("def call(args):\n" + "".join(f"    {line}\n" for line in lines))
    plain = {name: Buffer(sizes, None) for name, sizes in (("a", ("2", "s0")), ("c", ("4",)), ("d", ("5", "6")))}
    assert module.buffers == {**plain, "b": Buffer(("3",), "torch.bool")}


def test_operators_in_place_are_nodes_as_torch_prints_them() -> None:
    graph = torch.fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    total = graph.call_function(operator.iadd, (x, y))
    graph.call_function(operator.setitem, (total, slice(1, None), y))
    names = (
        "isub",
        "imul",
        "itruediv",
        "ifloordiv",
        "imod",
        "ipow",
        "imatmul",
        "iand",
        "ior",
        "ixor",
        "ilshift",
        "irshift",
    )
    for name in names:
        total = graph.call_function(getattr(operator, name), (total, y))
    graph.output(total)
    text = torch.fx.GraphModule(torch.nn.Module(), graph).print_readable(print_output=False)
    nodes = parse_graph(text.replace("forward(self, x, y)", 'forward(self, x: "f32[4]", y: "f32[4]")')).nodes
    assert [node.target for node in nodes.values()] == ["", "", "iadd", "setitem", *names]
    assert [node.inputs for node in nodes.values()][2:5] == [("x", "y"), ("iadd", "y"), ("iadd", "y")]
