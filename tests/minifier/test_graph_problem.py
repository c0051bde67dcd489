from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import fx

from minifier import Budget, ReductionError, reduce_graph
from minifier.graph_analysis import analyze
from minifier.graph_problem import Case, CaseOracle, GraphProblem, copy_to_device
from minifier.search import PartSelection
from tests.minifier.random_graphs import (
    all_present,
    connected,
    connected_culprits,
    inputs,
    loose_culprits,
    names,
    operations,
    random_graph,
)


@pytest.mark.parametrize("named", ["cuda:0", torch.device("cuda")])
def test_a_case_moves_with_all_that_names_a_device(named: object) -> None:
    graph = fx.Graph()
    held = graph.call_function(torch.add, (graph.placeholder("x"), graph.get_attr("weight")))
    made = graph.call_function(torch.ones, (3,), {"device": named})
    graph.output(graph.call_function(torch.add, (held, made)))
    module = fx.GraphModule({"weight": torch.nn.Parameter(torch.ones(3))}, graph)
    case = copy_to_device(Case(module, (torch.randn(3, 2).t(),)), torch.device("meta"))
    assert case.module(*case.inputs).device.type == case.inputs[0].device.type == "meta"
    assert case.inputs[0].stride() == (1, 2)
    assert module.weight.device.type == "cpu"
    assert named in module.graph.find_nodes(op="call_function", target=torch.ones)[0].kwargs.values()


class _Marked(torch.Tensor):
    pass


def _traced(function: Callable[..., Any]) -> fx.GraphModule:
    return fx.symbolic_trace(function)


def _calls(module: fx.GraphModule, *targets: object) -> bool:
    return set(targets) <= {node.target for node in module.graph.nodes}


def _same(one: Any, other: Any) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@given(st.integers(0, 10**6), st.integers(1, 25), st.booleans(), st.data())
@settings(max_examples=60, deadline=None)
def test_any_choice_of_parts_is_a_graph_that_runs(seed: int, size: int, joined: bool, data: st.DataObject) -> None:
    graph = random_graph(size, seed)
    anatomy = analyze(graph, inputs())
    problem = GraphProblem(anatomy, inputs(), CaseOracle(lambda *_: True))
    kept = data.draw(st.frozensets(st.sampled_from(problem.parts), min_size=1))
    case = problem.case(PartSelection(kept, joined))
    case.module.graph.lint()
    results = case.module(*case.inputs)
    assert len(operations(case.module)) == len(kept)
    if not joined:
        values = {node.name: value for node, value in zip(anatomy.nodes, anatomy.values, strict=True)}
        assert _same(results, [values[node.name] for node in case.module.graph.output_node().all_input_nodes])


@given(st.integers(0, 10**6), st.integers(2, 30), st.data())
@settings(max_examples=60, deadline=None)
def test_bypassing_keeps_the_dataflow_between_what_a_closure_holds(seed: int, size: int, data: st.DataObject) -> None:
    graph = random_graph(size, seed)
    problem = GraphProblem(analyze(graph, inputs()), inputs(), CaseOracle(lambda *_: True))
    larger = data.draw(st.frozensets(st.sampled_from(problem.parts), min_size=1))
    kept = data.draw(st.frozensets(st.sampled_from(sorted(larger)), min_size=1))
    assert problem.closure(kept) <= problem.closure(larger)
    module = problem.case(PartSelection(problem.closure(kept), bypass=True)).module
    chosen = sorted(problem.nodes(PartSelection(kept)))
    for before, after in pairwise(chosen):
        path = [problem.analysis.nodes[before].name, problem.analysis.nodes[after].name]
        assert connected(path)(module, []) == connected(path)(graph, [])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("reach", [None, 10])
def test_finds_culprits_that_must_be_there(seed: int, count: int, reach: int | None) -> None:
    graph = random_graph(100, seed, reach)
    culprits = loose_culprits(graph, count, seed)
    reduction = reduce_graph(graph, inputs(), all_present(culprits), simplify_inputs=False)
    assert names(reduction.graph_module) == set(culprits)
    assert reduction.minimal
    assert reduction.trials <= 12 + 8 * count
    reduction.graph_module(*reduction.inputs)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("reach", [None, 10])
def test_finds_culprits_that_must_be_connected(seed: int, count: int, reach: int | None) -> None:
    graph = random_graph(100, seed, reach)
    culprits = connected_culprits(graph, count, seed)
    reduction = reduce_graph(graph, inputs(), connected(culprits), simplify_inputs=False)
    assert names(reduction.graph_module) == set(culprits)
    assert reduction.minimal
    assert reduction.trials <= 102


def test_a_connection_that_cannot_be_bypassed_is_kept() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x)
        for _ in range(10):
            y = torch.sin(torch.tanh(y))
        y = y @ w
        for _ in range(10):
            y = torch.cos(y)
        return torch.sigmoid(y).sum()

    graph = _traced(f)
    fails = connected(["relu", "sigmoid"])
    reduction = reduce_graph(graph, [torch.randn(3, 4), torch.randn(4, 5)], fails, simplify_inputs=False)
    assert [node.target for node in operations(reduction.graph_module)] == [torch.relu, operator.matmul, torch.sigmoid]
    reduction.graph_module(*reduction.inputs)


def test_the_result_is_one_minimal_by_trying_each() -> None:
    graph = random_graph(60, 3)
    fails = connected(connected_culprits(graph, 3, 5))
    reduction = reduce_graph(graph, inputs(), fails, simplify_inputs=False)
    small = reduction.graph_module
    problem = GraphProblem(analyze(small, reduction.inputs), reduction.inputs, CaseOracle(fails))
    for part in problem.parts:
        for joined in (False, True):
            assert problem.fails_each([PartSelection(frozenset(problem.parts) - {part}, joined)]) == [False]


def test_an_oracle_may_spoil_its_inputs_and_its_graph() -> None:
    graph = random_graph(40, 1)
    culprits = loose_culprits(graph, 2, 1)
    given_inputs = inputs()

    def fails(module: fx.GraphModule, values: list[Any]) -> bool:
        verdict = all_present(culprits)(module, values) and all(bool((v != 7).all()) for v in values)
        for value in values:
            value.fill_(7)
        values.clear()
        for node in reversed(module.graph.nodes):
            if node.op != "placeholder":
                module.graph.erase_node(node)
        return verdict

    before = str(graph.graph)
    reduction = reduce_graph(graph, given_inputs, fails, simplify_inputs=False)
    assert names(reduction.graph_module) == set(culprits)
    assert str(graph.graph) == before
    assert _same(given_inputs, inputs())


def test_an_oracle_may_change_the_modules_buffers() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x).cos() + self.seen

    graph = fx.symbolic_trace(Net())

    def fails(module: fx.GraphModule, values: list[Any]) -> bool:
        clean = all(bool((b == 0).all()) for b in module.buffers())
        for buffer in module.buffers():
            buffer.add_(1)
        return clean and _calls(module, operator.add)

    reduction = reduce_graph(graph, [torch.randn(2)], fails, simplify_inputs=False)
    assert [node.target for node in operations(reduction.graph_module)] == [operator.add]
    assert torch.equal(graph.seen, torch.zeros(2))


def test_what_was_cut_becomes_an_input_with_the_value_it_had() -> None:
    graph = _traced(lambda x: torch.log(torch.exp(x) + 1).cos())
    x = torch.tensor([-5.0, 0.5])
    reduction = reduce_graph(graph, [x], lambda gm, _: _calls(gm, torch.log), simplify_inputs=False)
    assert _same(reduction.inputs, [torch.exp(x) + 1])
    assert [node.name for node in reduction.graph_module.graph.nodes] == ["add", "log", "output"]


def test_a_tuple_and_its_items_stay_together() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        first, second = torch.split(x.sin(), 2)
        return torch.relu(first) + second.cos()

    both = reduce_graph(_traced(f), [torch.randn(4)], lambda gm, _: _calls(gm, torch.relu, torch.split))
    results = both.graph_module(*both.inputs)
    assert len(results) == 2
    assert not _calls(both.graph_module, "sin", "cos")
    only = reduce_graph(_traced(f), [torch.randn(4)], lambda gm, _: _calls(gm, torch.relu))
    assert [node.op for node in only.graph_module.graph.nodes] == ["placeholder", "call_function", "output"]


def test_writes_to_one_storage_keep_their_meaning() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        base = torch.zeros(4) + x
        view = base.view(2, 2)
        view.add_(1)
        return torch.relu(base.sin() * base).cos()

    def fails(module: fx.GraphModule, values: list[Any]) -> bool:
        return _calls(module, "add_", operator.mul)

    whole = _traced(f)
    reduction = reduce_graph(whole, [torch.randn(4)], fails, simplify_inputs=False)
    assert [node.target for node in operations(reduction.graph_module)] == ["add_", operator.mul]


def test_sizes_follow_and_become_literals_where_their_tensor_is_gone() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.sin(x)
        return torch.relu(y.reshape(y.size(0) * y.size(1))).cos()

    reduction = reduce_graph(
        _traced(f), [torch.randn(2, 3)], lambda gm, _: _calls(gm, "reshape"), simplify_inputs=False
    )
    assert [node.target for node in operations(reduction.graph_module)] == [
        "size",
        "size",
        operator.mul,
        "reshape",
    ]
    assert reduction.graph_module(*reduction.inputs)[0].shape == (6,)
    relu = reduce_graph(_traced(f), [torch.randn(2, 3)], lambda gm, _: _calls(gm, torch.relu), simplify_inputs=False)
    assert len(operations(relu.graph_module)) == 1


def test_an_exception_of_the_oracle_is_not_the_failure() -> None:
    graph = random_graph(30, 2)
    culprits = loose_culprits(graph, 2, 2)

    def fails(module: fx.GraphModule, values: list[Any]) -> bool:
        if not set(culprits) & names(module):
            raise ValueError("nothing to compare")
        return all_present(culprits)(module, values)

    reduction = reduce_graph(graph, inputs(), fails, simplify_inputs=False)
    assert names(reduction.graph_module) == set(culprits)
    assert all(isinstance(error, ValueError) for error in reduction.refused)


def test_an_exception_on_the_whole_is_the_callers() -> None:
    def fails(module: fx.GraphModule, values: list[Any]) -> bool:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        reduce_graph(random_graph(3, 0), inputs(), fails)


@pytest.mark.parametrize(
    ("bad", "values", "message"),
    [
        (random_graph(3, 0), inputs(), "no failure to keep"),
        (random_graph(3, 0), inputs()[:2], "3 placeholders and 2 inputs"),
        (torch.nn.ReLU(), inputs(), "not a ReLU"),
        (random_graph(3, 0), [inputs(), 1, 2], "input 0 is a list"),
        (random_graph(3, 0), [torch.zeros(2).as_subclass(_Marked), 1, 2], "input 0 is a _Marked"),
    ],
)
def test_what_cannot_be_reduced_is_refused(bad: Any, values: list[Any], message: str) -> None:
    with pytest.raises(ReductionError, match=message):
        reduce_graph(bad, values, lambda *_: False)


def test_a_graph_that_does_not_run_is_refused() -> None:
    graph = _traced(lambda x: torch.ops.aten.view.default(x, [3]))
    with pytest.raises(ReductionError, match="does not run uncompiled on these inputs"):
        reduce_graph(graph, [torch.randn(4)], lambda *_: True)


def test_a_budget_gives_the_best_so_far_and_its_memo_goes_on() -> None:
    graph = random_graph(100, 4)
    asked: list[str] = []
    culprits = loose_culprits(graph, 4, 4)

    def fails(module: fx.GraphModule, values: list[Any]) -> bool:
        asked.append(str(module.graph))
        return all_present(culprits)(module, values)

    part = reduce_graph(graph, inputs(), fails, simplify_inputs=False, budget=Budget(calls=15))
    assert len(asked) == part.trials == 15
    assert not part.minimal
    assert all_present(culprits)(part.graph_module, part.inputs)
    assert len(operations(part.graph_module)) < 100
    rest = reduce_graph(graph, inputs(), fails, simplify_inputs=False, memo=part.memo)
    assert names(rest.graph_module) == set(culprits)
    assert len(asked) == len(set(asked)) == part.trials + rest.trials
    asked.clear()
    straight = reduce_graph(graph, inputs(), fails, simplify_inputs=False)
    assert straight.trials == part.trials + rest.trials
    assert str(straight.graph_module.graph) == str(rest.graph_module.graph)


def test_the_same_again_gives_the_same_again() -> None:
    graph = random_graph(60, 5, 8)
    fails = connected(connected_culprits(graph, 4, 2))
    one, two = (reduce_graph(graph, inputs(), fails, simplify_inputs=False) for _ in range(2))
    assert str(one.graph_module.graph) == str(two.graph_module.graph)
    assert one.memo == two.memo


def test_a_suspect_is_tried_first() -> None:
    graph = random_graph(500, 6)
    culprits = loose_culprits(graph, 2, 6)
    reduction = reduce_graph(
        graph, inputs(), all_present(culprits), simplify_inputs=False, suspects=[culprits[:1], culprits]
    )
    assert names(reduction.graph_module) == set(culprits)
    assert reduction.trials <= 7


def test_a_graph_whose_shape_of_output_matters_is_given_back_whole() -> None:
    graph = _traced(lambda x: {"only": torch.relu(x).cos()})
    reduction = reduce_graph(graph, [torch.randn(2)], lambda gm, xs: isinstance(gm(*xs), dict))
    assert isinstance(reduction.graph_module(*reduction.inputs), dict)
    assert not reduction.minimal
    nothing = _traced(lambda x: x)
    assert reduce_graph(nothing, [torch.randn(2)], lambda *_: True).trials >= 1


def test_random_state_and_grad_mode_are_left_alone() -> None:
    graph = _traced(lambda x: torch.relu(x + torch.rand(4)).cos())

    def fails(module: fx.GraphModule, values: list[Any]) -> bool:
        torch.set_grad_enabled(False)
        torch.rand(1)
        return _calls(module, torch.relu)

    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    reduce_graph(graph, [torch.randn(4, generator=torch.Generator().manual_seed(0))], fails)
    assert torch.equal(torch.rand(3), expected)
    assert torch.is_grad_enabled()


def test_what_is_done_in_place_for_its_effect_is_not_returned() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return y.sin().cos()

    def fails(module: fx.GraphModule, _: list[Any]) -> bool:
        returned = [node.target for node in module.graph.output_node().all_input_nodes]
        return {"add_", "cos"} <= {node.target for node in module.graph.nodes} and "add_" not in returned

    base = torch.zeros(4)
    reduction = reduce_graph(fx.symbolic_trace(f), [base, base[1:]], fails)
    assert [node.target for node in operations(reduction.graph_module)] == ["add_", "cos"]
    only = reduce_graph(fx.symbolic_trace(f), [base, base[1:]], lambda gm, _: "add_" in str(gm.graph))
    assert len(only.graph_module.graph.output_node().all_input_nodes) == 1
