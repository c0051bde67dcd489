"""The advice holds for the installed torch: when it is followed, nothing recompiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.skipif(not hasattr(torch._dynamo.config, "trace_autograd_ops"), reason="torch traces no backward")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("at_once", [False, True])
def test_a_loss_is_detached_where_the_backward_is_as_another_break_may_follow(*, at_once: bool) -> None:
    weight = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.SGD([weight])

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = (weight * x).sum()
        loss.backward()
        if at_once:
            loss = loss.detach()
        optimizer.step()
        return loss.detach()

    torch._dynamo.utils.counters.clear()
    with torch._dynamo.config.patch(trace_autograd_ops=True):
        torch.compile(step, backend="eager")(torch.ones(4))
    breaks = "".join(torch._dynamo.utils.counters["graph_break"])
    assert ("consumed grad_fn" in breaks) is not at_once


class _Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = 3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


class _ByFloat(_Scaled):
    def __init__(self) -> None:
        super().__init__()
        self.factor = 0.5  # type: ignore[assignment]  # as programs do


class _Settings:
    """An object that is no module."""

    def __init__(self, factor: int) -> None:
        self.factor = factor


def _double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def _times(x: torch.Tensor, n: float) -> torch.Tensor:
    return x * n


def _float_attribute() -> None:
    module = _ByFloat()
    compiled = torch.compile(module, backend="eager", dynamic=True)
    for factor in (0.5, 0.6, 0.7):
        module.factor = factor  # type: ignore[assignment]
        compiled(torch.ones(4))


def _integer_of_a_plain_object() -> None:
    compiled = torch.compile(lambda x, settings: x * settings.factor, backend="eager", dynamic=True)
    for factor in (3, 4, 5):
        compiled(torch.ones(4), _Settings(factor))


def _closed_over_float() -> None:
    def closing(factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: x * factor

    compiled = torch.compile(lambda x, function: function(x), backend="eager", dynamic=True)
    for function in map(closing, (0.5, 0.6, 0.7)):
        compiled(torch.ones(4), function)


@pytest.mark.parametrize(
    "followed",
    [
        _float_attribute,
        _integer_of_a_plain_object,
        _closed_over_float,
    ],
)
def test_following_the_advice_ends_the_recompiles(followed: Callable[[], None]) -> None:
    with torch._dynamo.config.patch(error_on_recompile=True):
        followed()


def test_without_the_advice_the_same_calls_recompile() -> None:
    compiled = torch.compile(_double, backend="eager")
    compiled(torch.ones(4))
    with (
        torch._dynamo.config.patch(error_on_recompile=True),
        pytest.raises(torch._dynamo.exc.RecompileError),
    ):
        compiled(torch.ones(5))


def test_at_the_limit_compiled_variants_are_used_and_the_rest_runs_uncompiled() -> None:
    graphs: list[Any] = []

    def backend(gm: torch.fx.GraphModule, _inputs: list[Any]) -> Any:
        graphs.append(gm)
        return gm.forward

    def named(x: torch.Tensor, name: str) -> torch.Tensor:
        return x + len(name) if name else x

    compiled = torch.compile(named, backend=backend)
    limit = torch._dynamo.config.recompile_limit
    names = ["n" * length for length in range(1, limit + 4)]
    results = [compiled(torch.zeros(1), name).item() for name in names + names]
    assert results == [len(name) for name in names + names]
    assert len(graphs) == limit
