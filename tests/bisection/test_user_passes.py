"""Which functions that a custom backend reaches are passes, and what remains when one is off."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from torch._dynamo.backends.common import aot_autograd
from torch.fx import Graph, GraphModule, symbolic_trace

from dynadiag.bisection import function_hooks, user_passes
from dynadiag.bisection.function_hooks import hook_function, reachable_functions
from dynadiag.trial.context import TRIAL
from dynadiag.trial.events import DecisionWithdrawn, TrialEvent
from dynadiag.trial.outcome import Decision
from dynadiag.trial.plan import AS_WRITTEN, Plan, Switch


def _add_for_mul(graph: Graph) -> None:
    for node in graph.nodes:
        if node.target is operator.mul:
            node.target = operator.add


def folds(gm: GraphModule) -> GraphModule:
    _add_for_mul(gm.graph)
    gm.recompile()
    return gm


def in_place(gm: GraphModule) -> None:
    folds(gm)


def tells(gm: GraphModule) -> bool:
    for node in gm.graph.nodes:
        if node.target is operator.mul:
            node.target = operator.add
            gm.recompile()
            return True
    return False


def anew(gm: GraphModule) -> GraphModule:
    return symbolic_trace(lambda x: x + 2)


def raises(gm: GraphModule) -> GraphModule:
    raise RuntimeError("no")


def looks(gm: GraphModule) -> int:
    return len(gm.graph.nodes)


def compiles(gm: GraphModule) -> Callable[..., Any]:
    return folds(gm).forward


class Told:
    def __init__(self) -> None:
        self.points: list[str] = []

    def send(self, event: TrialEvent) -> None:
        if isinstance(event, Decision):
            self.points.append(event.name)
        elif isinstance(event, DecisionWithdrawn):
            self.points = [name for name in self.points if f"/{name}/" not in event.key]


@pytest.fixture
def told() -> Iterator[Told]:
    told, before = Told(), TRIAL.reporter
    TRIAL.reporter = told  # type: ignore[assignment]  # what it has to be able to do here
    TRIAL._reported.clear()
    yield told
    TRIAL.reporter, TRIAL.plan = before, AS_WRITTEN


def _called(function: Any, plan: Plan) -> tuple[GraphModule, Any]:
    gm = symbolic_trace(lambda x: x * 2)
    TRIAL.plan = plan
    return gm, user_passes._run_pass(function, gm)


ON = Plan(record=("pass",))
OFF = Plan(record=("pass",), switches=(Switch("pass", keep=True, suffixes=()),))


@pytest.mark.parametrize("gives_for", [(folds, None), (in_place, None), (tells, False), (anew, None)])
def test_a_pass_that_is_off_leaves_the_graph_as_it_was(told: Told, gives_for: tuple[Any, Any]) -> None:
    function, gives = gives_for
    gm, result = _called(function, ON)
    assert told.points == [function.__name__]
    assert (result if isinstance(result, GraphModule) else gm)(3) == 5
    gm, result = _called(function, OFF)
    assert gm(3) == 6
    assert result is (gm if gives is None else gives)


def test_what_dynamo_writes_on_a_node_is_put_back_too(told: Told) -> None:
    gm = symbolic_trace(lambda x: x * 2)
    for node in gm.graph.nodes:
        node._dynamo_source = node.name
    TRIAL.plan = OFF
    user_passes._run_pass(folds, gm)
    assert [node._dynamo_source for node in gm.graph.nodes] == ["x", "mul", "output"]


def test_a_function_that_raises_is_a_pass(told: Told) -> None:
    with pytest.raises(RuntimeError):
        _called(raises, ON)
    assert told.points == ["raises"]
    gm, result = _called(raises, OFF)
    assert result is gm


def test_a_pass_that_the_plan_names_is_not_called(told: Told) -> None:
    gm, result = _called(raises, Plan(switches=(Switch("pass", keep=False, suffixes=("",)),)))
    assert result is gm


@pytest.mark.parametrize("function", [looks, compiles])
def test_a_function_that_reads_or_compiles_a_graph_is_no_pass(told: Told, function: Any) -> None:
    _, result = _called(function, OFF)
    assert told.points == []
    assert result is not None


PASSES = (folds, looks)


class Backend:
    def __call__(self, gm: GraphModule, inputs: Any) -> Any:
        return self.run(gm)

    def run(self, gm: GraphModule) -> Any:
        for one in PASSES:
            one(gm)
        return gm.forward


def _compiler(gm: GraphModule, inputs: Any) -> Any:
    return Backend().run(gm)


@pytest.mark.parametrize("backend", [Backend(), aot_autograd(fw_compiler=_compiler), lambda gm, i: Backend()(gm, i)])
def test_the_passes_of_a_backend_are_found_wherever_they_are(backend: Any) -> None:
    found = set(reachable_functions(backend))
    assert {Backend.run, folds, looks} <= found
    assert {function.__module__ for function in found} == {__name__}


def test_reachable_functions_are_found_after_hooking_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_hooks, "_originals", {})

    def compiler(gm: GraphModule, inputs: Any) -> Any:
        for one in PASSES:
            one(gm)

    for function in reachable_functions(compiler):
        if function is compiler:
            hook_function(function, lambda function, *args: function(*args))
    assert set(reachable_functions(compiler)) == {folds, looks, _add_for_mul}


def test_a_function_that_calls_passes_is_no_pass(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    def inner(gm: GraphModule) -> GraphModule:
        return folds(gm)

    def outer(gm: GraphModule) -> GraphModule:
        return inner(gm)

    monkeypatch.setattr(function_hooks, "_originals", {})
    for function in (inner, outer):
        hook_function(function, user_passes._run_pass)  # type: ignore[arg-type]  # a function
    gm = symbolic_trace(lambda x: x * 2)
    TRIAL.plan = OFF
    assert outer(gm)(3) == 6
    assert told.points == ["test_a_function_that_calls_passes_is_no_pass.<locals>.inner"]


def test_a_function_keeps_its_closure_and_its_defaults() -> None:
    base = 2

    def scaled(x: int, by: int = 3, *, plus: int = 1) -> int:
        return base * x * by + plus

    hook_function(scaled, lambda function, *args, **kwargs: -function(*args, **kwargs))  # type: ignore[arg-type]
    assert (scaled(1), scaled(1, 1, plus=0)) == (-7, -2)
