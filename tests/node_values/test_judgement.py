"""Which stored values are wrong: faults of every kind, and what must not be accused."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch.nn import functional as F  # noqa: N812 - its usual name

from dynadiag.node_values.gradients import ForwardCall, NotCompared, wrong_gradient
from dynadiag.node_values.judgement import StoredValue, agrees, judge, judge_apart, wrong_within
from dynadiag.node_values.node_run import NodeRun
from dynadiag.trial.reference_run import random_state


def values_of(module: fx.GraphModule, inputs: tuple[Any, ...]) -> dict[str, torch.Tensor]:
    """The values of all nodes that compute."""
    run = fx.Interpreter(module, garbage_collect_values=False)
    with torch.no_grad():
        run.run(*inputs)
    return {node.name: value for node, value in run.env.items() if node.op.startswith("call_")}


def wrong(function: Callable[..., Any], *inputs: Any, **changes: Callable[[torch.Tensor], torch.Tensor]) -> list[str]:
    """The nodes that are wrong if compiled code stores all values right, but for these."""
    module = fx.symbolic_trace(function)
    stored = {
        name: StoredValue(changes.get(name, lambda each: each)(value.clone()), "kernel")
        for name, value in values_of(module, inputs).items()
    }
    made = judge(module, inputs, stored, random_state())
    return [name for name, judgement in made.of.items() if judgement.wrong]


def block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    hidden = torch.relu(x @ w)
    return torch.softmax(hidden * 3, -1) @ w


def test_right_values_are_not_accused() -> None:
    assert wrong(block, torch.randn(8, 16), torch.randn(16, 16)) == []


@pytest.mark.parametrize("node", ["matmul", "relu", "mul", "softmax", "matmul_1"])
def test_a_fault_is_told_at_its_node_and_not_at_those_that_read_it(node: str) -> None:
    """What follows is right, of what was stored: only the node itself is wrong."""
    torch.manual_seed(0)  # one input in some hundreds lets one percent pass as rounding
    module = fx.symbolic_trace(block)
    inputs = torch.randn(8, 16), torch.randn(16, 16)

    class Faulty(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            value = super().run_node(n)
            return value * 1.01 if n.name == node else value

    run = Faulty(module, garbage_collect_values=False)
    run.run(*inputs)
    stored = {n.name: StoredValue(v, "kernel") for n, v in run.env.items() if n.op.startswith("call_")}
    made = judge(module, inputs, stored, random_state())
    assert [name for name, one in made.of.items() if one.wrong] == [node]
    own = values_of(module, inputs)
    apart = [name for name, each in stored.items() if not agrees(own[name], each.value)]
    made = judge_apart(module, inputs, stored, own, apart, random_state())
    assert [name for name, one in made.of.items() if one.wrong] == [node]


def test_only_what_lies_between_stored_values_runs() -> None:
    module, inputs = fx.symbolic_trace(block), (torch.randn(8, 16), torch.randn(16, 16))
    own = values_of(module, inputs)
    stored = {"relu": StoredValue(own["relu"].clone(), "a"), "softmax": StoredValue(own["softmax"] * 1.5, "b")}
    made = judge_apart(module, inputs, stored, own, ["softmax"], random_state())
    assert made.of["softmax"].wrong
    assert set(made.values) == {"relu", "mul", "softmax", "output"}


def test_a_part_is_judged_by_the_precision_with_which_its_kernel_began() -> None:
    """What a kernel stores in bfloat16 it goes on with in float32: its sum in float32 is no more precise than that."""
    x, y, z = (torch.randn(64, 64).bfloat16() for _ in range(3))
    module = fx.symbolic_trace(lambda x, y, z: (x * y + z).float() * 2)
    own = values_of(module, (x, y, z))
    precise = (x.float() * y.float() + z.float()) * 2
    stored = {"mul": StoredValue(x * y, "kernel"), "mul_1": StoredValue(precise, "kernel")}
    judged = functools.partial(judge_apart, module, (x, y, z), own=own, apart=["mul_1"], state=random_state())
    assert judged(stored=stored).of["mul_1"].wrong is False
    assert judged(stored=stored | {"mul_1": StoredValue(precise * 1.2, "kernel")}).of["mul_1"].wrong is True


def test_one_element_is_enough() -> None:
    def last_lost(value: torch.Tensor) -> torch.Tensor:
        value[-1, -1] = 0
        return value

    assert wrong(lambda x: (x + 3).exp(), torch.rand(8, 16), exp=last_lost) == ["exp"]


def test_a_sum_in_bfloat16_is_wrong_in_a_program_of_float32() -> None:
    assert wrong(lambda x, w: x @ w, torch.randn(8, 64), torch.randn(64, 8), matmul=lambda v: v.bfloat16().float())


def test_nan_in_place_of_a_number_is_wrong() -> None:
    assert wrong(lambda x: x * 2, torch.ones(3), mul=lambda v: v / 0 * 0) == ["mul"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_more_precise_value_of_a_narrow_type_is_right(dtype: torch.dtype) -> None:
    """Compiled code keeps float32 inside of a kernel, and rounds once."""
    x, w = torch.randn(8, 64).to(dtype), torch.randn(64, 64).to(dtype)

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(F.gelu(x @ w) * 3 + 1, (64,)).softmax(-1)

    module = fx.symbolic_trace(function)
    precise = function(x.float(), w.float()).to(dtype)
    made = judge(module, (x, w), {"softmax": StoredValue(precise, "kernel")}, random_state())
    assert made.of["softmax"].wrong is False


def test_a_kernel_goes_on_with_values_before_they_are_rounded() -> None:
    """A float32 sum of bfloat16 values is judged with the precision of bfloat16."""
    x, y, z = (torch.randn(64, 64).bfloat16() for _ in range(3))
    module = fx.symbolic_trace(lambda x, y, z: (x * y + z).float() * 2)
    product = x.float() * y.float()
    precise = {"mul": product.bfloat16(), "float_1": product + z.float(), "mul_1": (product + z.float()) * 2}

    def judged(**stored: torch.Tensor) -> list[str]:
        values = {name: StoredValue(value, "kernel") for name, value in (precise | stored).items()}
        return [name for name, one in judge(module, (x, y, z), values, random_state()).of.items() if one.wrong]

    assert judged() == []
    assert judged(float_1=precise["float_1"] * 1.2) == ["float_1", "mul_1"]


def test_what_depends_on_random_numbers_is_not_judged_until_it_was_stored() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        dropped = F.dropout(x, 0.5)
        return (dropped + 1).sum()

    module = fx.symbolic_trace(function)
    other = F.dropout(torch.ones(64), 0.5)  # other numbers than the graph draws
    state = random_state()
    own = judge(module, (torch.ones(64),), {"sum_1": StoredValue((other + 1).sum(), "k")}, state)
    assert own.of == {}
    both = {"dropout": StoredValue(other, "k"), "sum_1": StoredValue((other + 1).sum() + 1, "k")}
    assert judge(module, (torch.ones(64),), both, state).of["sum_1"].wrong is True


def test_uninitialized_memory_is_not_judged() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        memory = torch.empty_like(x)
        memory[:2].copy_(x[:2])
        return memory * 2

    def garbage(value: torch.Tensor) -> torch.Tensor:
        value[2:] = 123.0
        return value

    assert wrong(function, torch.ones(4), mul=garbage) == []
    assert wrong(function, torch.ones(4), mul=lambda value: value + 1) == ["mul"]


def test_writes_in_place_are_followed() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    given = torch.ones(4)
    module = fx.symbolic_trace(function)
    stored = {"add_": StoredValue(torch.full((4,), 2.0), "k"), "mul": StoredValue(torch.full((4,), 4.0), "k")}
    made = judge(module, (given,), stored, random_state())
    assert [one.wrong for one in made.of.values()] == [False, False]
    assert torch.equal(given, torch.ones(4))


def test_a_value_of_another_shape_is_not_the_nodes() -> None:
    module = fx.symbolic_trace(lambda x: x * 2)
    assert judge(module, (torch.ones(4),), {"mul": StoredValue(torch.ones(2), "k")}, random_state()).of == {}


def test_near_values_agree_and_far_ones_do_not() -> None:
    value = torch.randn(64)
    assert agrees(value, value * (1 + 1e-7))
    assert not agrees(value, value * 1.001)
    assert not agrees(value, value.double())


def test_the_wrong_node_inside_of_a_kernel_is_named() -> None:
    import torch._inductor.config as config

    def function(x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(x.sin())
        return (hidden * 2 + x).cos().sum(0)

    module = fx.symbolic_trace(function)
    x = torch.randn(16, 16)
    stored = {"sum_1": StoredValue(function(x) + 1, "kernel")}
    made = judge(module, (x,), stored, random_state())
    assert made.of["sum_1"].wrong
    with config.patch({"cpp.inject_relu_bug_TESTING_ONLY": "accuracy", "fx_graph_cache": False}):
        run = NodeRun(module, named=lambda _: True, wanted=frozenset(), whole=lambda *_: None)
        run.run(x)
        found = wrong_within(module, "sum_1", stored, made.values, run, random_state())
    assert found is not None
    assert found[0] == "relu"


def test_a_wrong_decomposition_of_a_backward_is_seen_by_autograd() -> None:
    """The backward graph is wrong in itself: only the forward graph, differentiated, shows it."""

    def forward(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor]:
        return (F.silu(x @ w).sum(),)

    def backward(h: torch.Tensor, x: torch.Tensor, tangents_1: torch.Tensor) -> tuple[None, torch.Tensor]:
        gate = torch.sigmoid(h)
        gradient = tangents_1.expand(4, 8) * gate * (1 + h * (1 - gate))
        return None, x.t() @ gradient

    def faulty(h: torch.Tensor, x: torch.Tensor, tangents_1: torch.Tensor) -> tuple[None, torch.Tensor]:
        gate = torch.sigmoid(h)
        gradient = tangents_1.expand(4, 8) * gate * (1 + h)
        return None, x.t() @ gradient

    x, w = torch.randn(4, 6), torch.randn(6, 8, requires_grad=True)
    call = ForwardCall.of(fx.symbolic_trace(forward), (x, w), random_state())
    given = [(x @ w).detach(), x, torch.tensor(1.0)]
    for function, is_wrong in ((backward, False), (faulty, True)):
        module = fx.symbolic_trace(function)
        last = [node for node in module.graph.nodes if node.op.startswith("call_")][-1]
        found = wrong_gradient(call, module, given, {last.name: module(*given)[1]})
        assert (found is not None) == is_wrong
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(NotCompared, match="has written to the inputs"):
        wrong_gradient(call, module, given, {last.name: module(*given)[1]})


def test_a_recomputed_forward_value_is_no_wrong_gradient() -> None:
    """The subtraction passes its gradient on: the only node of its line computes its value once more."""

    def forward(w: torch.Tensor) -> tuple[torch.Tensor]:
        return ((F.leaky_relu(w) - 1).square().sum(),)

    def faulty(w: torch.Tensor, tangents_1: torch.Tensor) -> tuple[torch.Tensor]:
        again = F.leaky_relu(w) - 1
        gradient = tangents_1 * (again * 2)
        return (torch.where(w > 0, gradient, gradient * 0.03),)

    w = torch.randn(8, 8, requires_grad=True)
    call = ForwardCall.of(fx.symbolic_trace(forward), (w,), random_state())
    module, given = fx.symbolic_trace(faulty), [w.detach(), torch.tensor(1.0)]
    lines = {"where": "leaky_relu", "mul_2": "leaky_relu", "mul_1": "square", "mul": "square"}
    for node in (*call.module.graph.nodes, *module.graph.nodes):
        node.stack_trace = lines.get(node.name, node.name)
    found = wrong_gradient(call, module, given, {"where": module(*given)[0]})
    assert found is not None
    assert (found.node, found.of, len(found.autograd)) == ("where", "w", 4)
    assert found.autograd != found.compiled


def test_an_input_that_the_graph_writes_to_is_kept_as_it_was() -> None:
    given = torch.ones(2), torch.ones(2)
    call = ForwardCall.of(fx.symbolic_trace(lambda x, y: x.add_(1) + y), given, random_state())
    given[0].add_(5)
    assert call.is_unchanged
    assert call.inputs[0].tolist() == [1, 1]
    given[1].add_(5)
    assert not call.is_unchanged


@pytest.mark.parametrize("start", [0, 2**60])
def test_an_integer_is_judged_by_its_last_digit(start: int) -> None:
    module = fx.symbolic_trace(lambda x: (x * 10).to(torch.int64) + start)
    x = torch.randn(8)
    right = module(x)
    wrong = right.clone()
    wrong[0] += 1
    for stored, expected in ((right, False), (wrong, True)):
        assert judge(module, (x,), {"add": StoredValue(stored, None)}, random_state()).of["add"].wrong is expected
