"""torch's hints checked against the case: hints that cannot work are dropped, and tested advice was tested."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import dynadiag
from dynadiag.explanation.explanation import Explanation, explain
from dynadiag.explanation.hints import break_advice
from dynadiag.render.report import explanation_text
from tests.explanation.build import FakeRecording, a_break

config = torch._dynamo.config
LOG = logging.getLogger(__name__)


def prints_a_text(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    print("half way")  # noqa: T201
    return y * 2


def prints_a_tensor(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    print(y)  # noqa: T201
    return y * 2


def prints_a_size(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    print(y.shape)  # noqa: T201
    return y * 2


def prints_a_size_as_text(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    print(f"{y.shape}")  # noqa: T201
    return y * 2


def warns(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    warnings.warn("half way", stacklevel=1)
    return y * 2


def logs(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    LOG.warning("half way")
    return y * 2


def opens(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    open("/dev/null").close()  # noqa: PTH123
    return y * 2


def takes_an_item(x: torch.Tensor) -> torch.Tensor:
    return x * x.sum().item()


def finds(x: torch.Tensor) -> torch.Tensor:
    return x.nonzero() * 2


class Hooked(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)
        self.inner.register_full_backward_hook(lambda _module, _inputs, _outputs: None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.inner(x))


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    with config.patch(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    config.reorderable_logging_functions.clear()
    config.ignore_logging_functions.clear()
    torch._dynamo.reset()


def recorded(tmp_path: Path, fn: Callable[..., Any]) -> Explanation:
    with dynadiag.record(tmp_path / "run.dynadiag", force=True):
        torch.compile(fn, backend="eager")(torch.ones(3, 3))
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        return explain(recording)


def advice(tmp_path: Path, fn: Callable[..., Any]) -> list[tuple[str, str]]:
    return [(item.checked, item.text) for item in recorded(tmp_path, fn).findings[0].advice]


# A program -> the advice that is said to be tried, how it is followed, and the program that follows it.
TRIED: dict[Callable[..., Any], tuple[str, Callable[[], object], Callable[..., Any]]] = {
    prints_a_text: ("functions.add(print)", lambda: config.reorderable_logging_functions.add(print), prints_a_text),
    prints_a_tensor: ("functions.add(print)", lambda: config.reorderable_logging_functions.add(print), prints_a_tensor),
    prints_a_size: ("Print a text", lambda: config.reorderable_logging_functions.add(print), prints_a_size_as_text),
    warns: ("functions.add(warnings.warn)", lambda: config.reorderable_logging_functions.add(warnings.warn), warns),
    logs: ("Logger.warning", lambda: config.ignore_logging_functions.add(logging.Logger.warning), logs),
    takes_an_item: ("capture_scalar_outputs", lambda: setattr(config, "capture_scalar_outputs", True), takes_an_item),
    finds: (
        "capture_dynamic_output_shape_ops",
        lambda: setattr(config, "capture_dynamic_output_shape_ops", True),
        finds,
    ),
}


@pytest.mark.parametrize("fn", TRIED, ids=lambda fn: fn.__name__)
def test_advice_that_was_tried_ends_the_break(tmp_path: Path, fn: Callable[..., Any]) -> None:
    words, follow, cured = TRIED[fn]
    (given,) = [text for checked, text in advice(tmp_path, fn) if checked == "tried"]
    assert words in given
    torch._dynamo.reset()
    follow()
    assert recorded(tmp_path, cured).break_count == 0


def test_a_call_that_torch_cannot_move_gets_no_advice_to_move_it(tmp_path: Path) -> None:
    assert not [text for _, text in advice(tmp_path, opens) if "reorderable" in text]
    config.reorderable_logging_functions.add(print)
    torch._dynamo.reset()
    assert recorded(tmp_path, prints_a_size).break_count == 1  # why a Size is printed as a text


def test_compiled_autograd_is_not_advised_where_it_raises(tmp_path: Path) -> None:
    def backward(module: torch.nn.Module) -> None:
        torch.compile(module, backend="aot_eager")(torch.ones(2, 3, requires_grad=True)).sum().backward()

    with dynadiag.record(tmp_path / "run.dynadiag"):
        backward(Hooked())
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        (given,) = explain(recording).findings[0].advice
    assert given.checked == "tried"
    assert "compile the hooked module's forward alone" in given.text
    torch._dynamo.reset()
    with config.patch(compiled_autograd=True), pytest.raises(AssertionError, match="requires CompiledAutograd"):
        backward(Hooked())
    torch._dynamo.reset()
    alone = Hooked()
    alone.inner.forward = torch.compile(alone.inner.forward, backend="aot_eager")
    with dynadiag.record(tmp_path / "alone.dynadiag"):
        alone(torch.ones(2, 3, requires_grad=True)).sum().backward()
    with dynadiag.open(tmp_path / "alone.dynadiag") as recording:
        assert (explain(recording).break_count, explain(recording).graph_count) == (0, 1)


def test_a_hint_that_nobody_checked_says_whose_it_is() -> None:
    text = explanation_text(explain(FakeRecording(break_records=(a_break(hints=("Use `torch.cond`.",)),))))
    assert "hint: Use `torch.cond`. (torch's own, unchecked)" in text
    assert "help: Use `torch.cond`." not in text


def test_a_request_for_a_bug_report_gives_way_to_advice() -> None:
    hints = ("Please file an issue on GitHub so the PyTorch team can add support for it.", "Use another.")
    assert [item.text for item in break_advice(a_break(hints=hints))] == ["Use another."]
    assert [item.text for item in break_advice(a_break(hints=hints[:1]))] == [hints[0]]


@pytest.mark.parametrize(
    ("types", "words"),
    [("'dict'", "Print after the compiled call"), ("'int'", "add(print)"), ("'str', 'Size'", "Print a text")],
)
def test_a_print_is_advised_on_by_the_types_that_it_prints(types: str, words: str) -> None:
    hint = "You can try adding it to `torch._dynamo.config.reorderable_logging_functions`."
    reason = (
        f"Dynamo does not know how to trace builtin operator `print` with argument types [{types}] (has_kwargs True)"
    )
    (given,) = break_advice(a_break(hints=(hint,), reason=reason))
    assert words in given.text
    assert given.checked == "consistent"
