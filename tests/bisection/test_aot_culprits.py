"""What AOTAutograd did is named: the decomposition, the pass, the functionalization, or the nodes that it traced."""

from __future__ import annotations

import pytest
from torch.fx import Graph

from dynadiag.bisection.aot_hooks import _cse
from tests.bisection.conftest import Bisected

HEAD = """
import torch
import torch._functorch.partitioners as partitioners
from torch._subclasses.functional_tensor import FunctionalTensorMode
aten = torch.ops.aten
torch.manual_seed(0)
"""
PYTHON_KERNEL = """
from torch._C import DispatchKey
def doubled(parts, *args):
    return aten.pad_sequence.default._op_dk(DispatchKey.CompositeImplicitAutograd, parts, *args) * 2
aten.pad_sequence.default.py_kernels[DispatchKey.CompositeImplicitAutograd] = doubled
aten.pad_sequence.default._dispatch_cache.clear()
def f(x):
    y = x.sin() + 1
    return torch.nn.utils.rnn.pad_sequence([y, y[:2]])
x = torch.ones(4)
torch.testing.assert_close(torch.compile(f, backend="aot_eager")(x), f(x))
"""
CSE = """
inner = partitioners.fx_graph_cse
def merge(graph, **options):
    new = inner(graph, **options)
    first, *others = [node for node in new.nodes if node.target is aten.add.Tensor and node.kwargs]
    for node in others:
        node.replace_all_uses_with(first)
        new.erase_node(node)
    return new
partitioners.fx_graph_cse = merge
def f(x):
    y = x.tanh()
    a = torch.add(y, x, alpha=2)
    return a * torch.add(y, x, alpha=3)
x = torch.ones(4, requires_grad=True)
torch.testing.assert_close(torch.compile(f, backend="aot_eager")(x), f(x))
"""
PARTITIONER = """
inner = partitioners._extract_fwd_bwd_modules
def extract(*args, **kwargs):
    forward, backward = inner(*args, **kwargs)
    for node in backward.graph.nodes:
        if node.target is aten.sin.default:  # computed again
            node.target = aten.tanh.default
    backward.recompile()
    return forward, backward
partitioners._extract_fwd_bwd_modules = extract
def f(x):
    y = x.sin()
    return (y * y).sum()
def gradient(function):
    x = torch.ones(4, requires_grad=True)
    function(x).backward()
    return x.grad
torch.testing.assert_close(gradient(torch.compile(f, backend="aot_eager")), gradient(f))
"""
FUNCTIONALIZATION = """
inner = FunctionalTensorMode.__torch_dispatch__
def dispatch(self, func, types, args=(), kwargs=None):
    if func is aten.mul_.Tensor:
        args = (args[0], args[1] + 1)
    return inner(self, func, types, args, kwargs)
FunctionalTensorMode.__torch_dispatch__ = dispatch
def f(x):
    y = x + 1
    z = y.cos()
    z.mul_(3)
    return z.sin() + y
x = torch.ones(4)
torch.testing.assert_close(torch.compile(f, backend="aot_eager")(x), f(x))
"""
TRACED_BACKWARD = """
def f(x):
    y = x.exp() + 1
    gate = torch.sigmoid(y)
    gate.add_(1)
    return (x * gate).sum()
print(torch.compile(f, backend="aot_eager")(torch.ones(4, requires_grad=True)))
"""


def test_options_reach_the_pass_that_they_are_for() -> None:
    given: dict[str, object] = {}

    def cse(graph: Graph, **options: object) -> Graph:
        given.update(options)
        return graph

    _cse({"compile_id": "0/0"}, cse, Graph(), extra_node_key=id)  # torch 2.15 gives it
    assert given == {"extra_node_key": id}


@pytest.mark.parametrize(
    ("program", "kind", "name", "nodes", "text"),
    [
        (PYTHON_KERNEL, "decomposition", "aten.pad_sequence.default", (), "pad_sequence([y, y[:2]])"),
        (CSE, "pass", "fx_graph_cse", ("add_1",), "torch.add(y, x, alpha=3)"),
        pytest.param(
            PARTITIONER,
            "pass",
            "min_cut_rematerialization_partition",
            ("sin",),
            "y = x.sin()",
            marks=pytest.mark.slow,
        ),
        pytest.param(FUNCTIONALIZATION, "functionalization", "mul_", ("mul_",), "z.mul_(3)", marks=pytest.mark.slow),
        pytest.param(TRACED_BACKWARD, "graph", "0/0", ("gate", "add_"), "gate.add_(1)", marks=pytest.mark.slow),
    ],
)
def test_what_aot_autograd_did_is_named(
    bisected: Bisected, program: str, kind: str, name: str, nodes: tuple[str, ...], text: str
) -> None:
    source = HEAD + program
    verdict = bisected(source)
    assert (verdict.verdict, verdict.rung) == ("found", "aot_eager")
    (culprit,) = verdict.culprits
    assert (culprit.group, culprit.name) == (kind, name)
    assert culprit.nodes == nodes
    assert (program is TRACED_BACKWARD) == any("once its backward runs" in note for note in verdict.notes)
    assert any(text in source.splitlines()[line - 1] for _, line in culprit.lines)


FOLDED = """
def f(x):
    grid = torch.ones(2, 2)
    lift = torch.arccosh(torch.log2(torch.atan2(grid, grid)))
    return x + torch.softmax(lift, dim=-1).nan_to_num(0.0)
print(torch.compile(f)(torch.ones(2, 2)))
"""


@pytest.mark.slow
def test_a_folded_constant_and_two_that_fail_only_together_are_told(bisected: Bisected) -> None:
    verdict = bisected(HEAD + FOLDED)
    if verdict.verdict == "passes":
        pytest.skip("this torch compiles it")
    assert {culprit.group for culprit in verdict.culprits} == {"lowering"}
    assert any("is a constant that constant_fold_uniform_value made" in note for note in verdict.notes)
    assert any("fail only together" in note for note in verdict.notes)


SAME_PASS_TWICE = """
previous = torch.zeros(3, 4)
def f(current):
    previous[0:, :] = current[0:, :]
    current.add_(1)
    return current.relu().sum()
current = torch.arange(12.0).view(3, 4)
before = current.clone()
torch.compile(f)(current)
torch.testing.assert_close(previous, before)
"""


@pytest.mark.slow
def test_a_pass_that_another_run_of_it_makes_up_for_is_told_with_both_lines(bisected: Bisected) -> None:
    source = HEAD + SAME_PASS_TWICE
    verdict = bisected(source)
    if verdict.verdict == "passes":
        pytest.skip("this torch compiles it right")
    assert {(culprit.group, culprit.name) for culprit in verdict.culprits} == {("pass", "remove_noop_ops")}
    lines = source.splitlines()
    assert all("previous[0:, :]" in lines[line - 1] for culprit in verdict.culprits for _, line in culprit.lines)
    assert all(culprit.lines for culprit in verdict.culprits)


PATTERN_CHECK = """
import torch
import torch._inductor.fx_passes.post_grad as post_grad
from torch._inductor.pattern_matcher import CallFunction, KeywordArg, register_graph_pattern

def is_small(match):
    raise KeyError("is_small")

shape = CallFunction(torch.ops.aten.tanh.default, KeywordArg("x"))

@register_graph_pattern(shape, pass_dict=post_grad.pass_patterns[0], extra_check=is_small)
@register_graph_pattern(shape, pass_dict=post_grad.pass_patterns[1], extra_check=is_small)
def shorten(match, x):
    pass

def f(x):
    return torch.tanh(x.sin()) + 1

torch.compile(f)(torch.ones(4))
"""


def test_a_pattern_whose_check_raises_is_named_in_each_pass_that_has_it(bisected: Bisected) -> None:
    verdict = bisected(PATTERN_CHECK)
    assert {(c.group, c.name) for c in verdict.culprits} == {("pattern", "shorten")}, verdict.notes
    assert {number for c in verdict.culprits for _, number in c.lines} == {17}
    assert verdict.confirmed[0].endswith("it passes")
