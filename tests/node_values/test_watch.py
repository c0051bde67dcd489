"""The calls of compiled graphs that are watched."""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from torch import fx

from dynadiag.capture.settings import ValueOptions
from dynadiag.node_values.watch import _Graph, _Watcher, watching, without_unrepeatable
from dynadiag.torch_private import graph_calls
from tests.node_values.test_node_run import hooked, through_fp8, vmap_of_grad


def recorded(function: Callable[..., Any], run: Callable[[Any], None], **options: Any) -> list[dict[str, Any]]:
    """The calls of a compiled function whose values are recorded while ``run`` uses it."""
    recorder, compiled = MagicMock(), torch.compile(function, backend=options.pop("backend", "inductor"))
    torch._dynamo.reset()
    torch.manual_seed(0)
    with watching(recorder, ValueOptions(**options)):
        run(compiled)
    return [one.args[1] | json.loads(one.args[3] if len(one.args) > 3 else "{}") for one in recorder.append.mock_calls]


def wrong(call: dict[str, Any]) -> list[str]:
    return [node["node"] for node in call["nodes"] if node.get("stored", {}).get("wrong")]


def tanh(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x @ w).sum()


def siamese(f: Any) -> None:
    w = torch.randn(8, 8, requires_grad=True)
    (f(torch.randn(4, 8), w) - f(torch.randn(4, 8), w)).backward()


def in_reverse(f: Any) -> None:
    w = torch.randn(8, 8, requires_grad=True)
    losses = [f(torch.randn(4, 8), w) for _ in range(2)]
    for loss in reversed(losses):
        loss.backward()


def after_a_warm_up(f: Any) -> None:
    w = torch.randn(8, 8, requires_grad=True)
    f(torch.randn(4, 8), w)
    f(torch.randn(4, 8), w).backward()


@pytest.mark.parametrize("run", [siamese, in_reverse, after_a_warm_up])
def test_a_backward_is_compared_with_its_own_forward_call(run: Any) -> None:
    forward, backward = recorded(tanh, run)
    assert (forward["graph"], backward["graph"]) == ("forward", "backward")
    assert wrong(backward) == []
    assert backward["notes"] == []


@pytest.mark.parametrize("run", [siamese, after_a_warm_up])
def test_a_fault_of_the_backward_is_told_of_its_own_forward_call(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import compile_fx

    of_silu = lambda gradient, value: gradient * torch.sigmoid(value) * (1 + value)  # noqa: E731
    table = compile_fx.select_decomp_table() | {torch.ops.aten.silu_backward.default: of_silu}
    monkeypatch.setattr(compile_fx, "select_decomp_table", lambda: table)
    function = lambda x, w: torch.nn.functional.silu(x @ w).sum()  # noqa: E731
    assert wrong(recorded(function, run)[1]) != []


def test_a_backward_whose_forward_call_was_not_seen_is_not_compared() -> None:
    def run(f: Any) -> None:
        w = torch.randn(8, 8, requires_grad=True)
        loss = f(torch.randn(4, 8), w)
        loss.backward(retain_graph=True)
        loss.backward()

    later = recorded(tanh, run, calls=((0, 1),))[-1]
    assert later["call"] == 1
    assert "its gradients are not compared with autograd: its forward call was not seen" in later["notes"]


@pytest.fixture
def own_operators() -> Iterator[Any]:
    """An operator that sets its scale by its first batch, as ActNorm does, and one that does not."""
    scale = list[float]()

    @torch.library.custom_op("dynadiag_values::actnorm", mutates_args=())
    def actnorm(x: torch.Tensor) -> torch.Tensor:
        if not scale:
            scale.append(1 / x.std().item())
            return x.clone()
        return x * scale[0]

    @torch.library.custom_op("dynadiag_values::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    actnorm.register_fake(torch.empty_like)
    twice.register_fake(torch.empty_like)
    yield actnorm, twice
    for each in (actnorm, twice):
        each._lib._destroy()


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_an_operator_whose_first_call_differs_accuses_nobody(own_operators: Any, backend: str) -> None:
    (call,) = recorded(lambda x: own_operators[0](x.sin()).cos(), lambda f: f(torch.randn(8)), backend=backend)
    assert wrong(call) == []
    assert any("gives the same value in each call" in note for note in call["notes"])


@pytest.mark.parametrize(("first", "accused"), [("one value", ["cos"]), ("another value", [])])
def test_what_an_operator_gave_at_its_first_call_decides_what_is_accused_behind_it(
    first: str, accused: list[str]
) -> None:
    own = [node for node in fx.symbolic_trace(lambda x: x.sin().cos()).graph.nodes if node.name == "sin"]
    nodes = [
        {"node": "sin", "hash": "one value", "inputs": ["x"]},
        {"node": "cos", "hash": "?", "inputs": ["sin"], "stored": {"wrong": True, "off": 1.0}},
    ]
    call = json.loads(without_unrepeatable(json.dumps({"nodes": nodes, "notes": []}), own, {"sin": first}))
    assert wrong(call) == accused
    assert [note.rpartition(": ")[2] for note in call["notes"]] == ([] if accused else ["cos"])


def test_behind_an_operator_that_repeats_its_value_a_fault_is_told(own_operators: Any) -> None:
    backend = lambda gm, _: lambda *given: tuple(each + 1 for each in gm(*given))  # noqa: E731
    (call,) = recorded(lambda x: own_operators[1](x.sin()).cos(), lambda f: f(torch.randn(8)), backend=backend)
    assert wrong(call) == ["cos"]
    assert call["notes"] == []


def with_complex(x: torch.Tensor) -> torch.Tensor:
    z = torch.complex(x, x * 2)
    return torch.view_as_real(z * z.conj()).sum() + (z**2).abs().sum() + torch.fft.rfft(x).abs().sum()


@pytest.mark.filterwarnings("ignore:Torchinductor does not support code generation for complex")
def test_complex_numbers_are_judged() -> None:
    backward = recorded(with_complex, lambda f: f(torch.randn(8, 8, requires_grad=True)).backward())[1]
    assert wrong(backward) == []
    assert len(backward["nodes"]) > 20


def test_an_input_and_its_view_that_is_written_to() -> None:
    def write(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x + y

    def run(f: Any) -> None:
        x = torch.randn(8, 8)
        f(x, x.view(64).view(8, 8))

    (call,) = recorded(write, run)
    assert call["notes"] == []
    assert wrong(call) == []
    assert "stored" in call["nodes"][-1]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch 2.11 makes a function of a hook
@pytest.mark.parametrize("function", [vmap_of_grad, hooked, through_fp8])
def test_what_a_graph_makes_of_gradients_is_the_same_uncompiled(function: Any) -> None:
    call = recorded(function, lambda f: f(torch.full((3, 3), -1.0, requires_grad=True)), backend="eager")[0]
    assert wrong(call) == []
    assert [note for note in call["notes"] if "to its end" in note] == []
    assert call["nodes"][-1]["stored"]["nan"] == call["nodes"][-1]["nan"] == 9


def returns_a_view(x: torch.Tensor, w: torch.Tensor) -> Any:
    h = torch.tanh(x @ w)
    return h, h.view(-1)


def draws(x: torch.Tensor, w: torch.Tensor) -> Any:
    return torch.nn.functional.dropout(torch.tanh(x @ w)), x


@pytest.mark.parametrize(
    ("function", "why"), [(returns_a_view, "returns a value and a view of it"), (draws, "draws random numbers")]
)
def test_why_gradients_are_not_compared_is_a_note(function: Any, why: str) -> None:
    def run(f: Any) -> None:
        f(torch.randn(4, 8), torch.randn(8, 8, requires_grad=True))[0].sum().backward()

    (note,) = [each for each in recorded(function, run)[1]["notes"] if "not compared with autograd" in each]
    assert why in note


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda value: value.float(), ["half"]),
        (lambda value: value.flatten(), ["half"]),
        (lambda value: value[:1], []),
        (lambda value: value, []),
    ],
)
def test_what_is_returned_in_another_form(change: Any, expected: list[str]) -> None:
    backend = lambda gm, _: lambda *given: tuple(map(change, gm(*given)))  # noqa: E731
    (call,) = recorded(lambda x: x.sin().half(), lambda f: f(torch.randn(2, 4)), backend=backend)
    assert wrong(call) == expected
    is_told = [note for note in call["notes"] if note.endswith("for half, which is float16 (2, 4) uncompiled")]
    assert len(is_told) == (change(torch.ones(2, 4).half()).shape != (2, 4) or expected == ["half"])


def test_a_thread_that_compiles_hides_no_call_of_another() -> None:
    begun, may_end = threading.Event(), threading.Event()
    seen = list[bool]()

    def slow(gm: Any, _inputs: Any) -> Any:
        seen.append(graph_calls.is_tracing(()) == torch.compiler.is_compiling())  # not before torch 2.13
        begun.set()
        may_end.wait()
        return gm

    compile_slowly = lambda: torch.compile(lambda x: x + 1, backend=slow)(torch.ones(3))  # noqa: E731
    thread = threading.Thread(target=compile_slowly)
    thread.start()
    begun.wait()
    try:
        assert (seen, graph_calls.is_tracing(())) == ([True], False)
        assert not graph_calls.can_compile()
    finally:
        may_end.set()
        thread.join()
    assert graph_calls.can_compile()


def test_what_a_call_without_a_backward_was_given_is_freed() -> None:
    freed = list[str]()

    def run(f: Any) -> None:
        x, w = torch.randn(4, 8), torch.randn(8, 8, requires_grad=True)
        weakref.finalize(x, freed.append, "x")
        loss = f(x, w)
        del x
        assert freed == ["x"]
        del loss

    recorded(tanh, run)


def test_a_graph_that_was_compiled_in_one_direction_is_a_forward_where_its_inputs_have_gradients() -> None:
    module = fx.symbolic_trace(lambda x: (x.sin(),))
    for requires_grad, kind in ((True, "forward"), (False, "inference")):
        graph = _Graph(module, "0/0", None)
        given = (torch.ones(2, requires_grad=requires_grad),)
        _Watcher(MagicMock(), ValueOptions())._observed(graph, lambda each: module(*each), given)
        assert (graph.graph, graph.lacks_backward) == (kind, requires_grad)
