"""torch's hints checked against the case: hints that cannot work are dropped, and tested advice was tested."""

from __future__ import annotations

import math
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.exc import InternalTorchDynamoError

import dynadiag
from dynadiag.explanation.break_case import BreakCase
from dynadiag.explanation.break_remedies import break_advice
from dynadiag.explanation.explanation import Explanation, explain
from dynadiag.explanation.findings import Advice
from dynadiag.recording.records import Break, Span
from dynadiag.render.report import explanation_text
from tests.explanation.advice_programs import Hooked, config, opens_a_file, prints_a_size
from tests.explanation.build import FILE, FakeRecording, a_break, records

OLD = torch.__version__ < (2, 12)


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


def given(item: Break, sources: Mapping[str, str] | None = None) -> tuple[Advice, ...]:
    return break_advice(BreakCase(item, records(breaks=(item,), sources=sources or {})))


def advice(tmp_path: Path, fn: Callable[..., Any]) -> list[tuple[str, str]]:
    return [(item.checked, item.text) for item in recorded(tmp_path, fn).findings[0].advice]


def steps(v: torch.Tensor) -> torch.Tensor:
    time, width = 0.0, 0.5
    while time < 1.0:
        new = v + width * v.cos()
        if (new - v).abs().max() < 1:
            time, v = time + width, new
        else:
            width = width / 2
    return v


def test_a_branch_that_decides_how_often_a_loop_runs_is_told_as_that(tmp_path: Path) -> None:
    ((_, text),) = advice(tmp_path, steps)
    assert "decide how often this loop does its work" in text


def test_a_call_that_torch_cannot_move_gets_no_advice_to_move_it(tmp_path: Path) -> None:
    assert not [text for _, text in advice(tmp_path, opens_a_file) if "reorderable" in text]
    config.reorderable_logging_functions.add(print)
    torch._dynamo.reset()
    assert recorded(tmp_path, prints_a_size).break_count == 1  # why a Size is printed as a text


def prints_in_a_hook(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    z = y.sin()
    y.register_hook(print)
    return z


def test_a_print_that_something_else_calls_gets_no_advice_that_makes_torch_raise(tmp_path: Path) -> None:
    x = torch.ones(3, requires_grad=True)
    with dynadiag.record(tmp_path / "run.dynadiag"):
        torch.compile(prints_in_a_hook, backend="eager")(x)
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        found = explain(recording).findings
    assert "print" in "".join(item.cause or "" for item in found)
    assert not [each.text for item in found for each in item.advice if "reorderable" in each.text]
    config.reorderable_logging_functions.add(print)
    torch._dynamo.reset()
    raises = nullcontext() if OLD else pytest.raises(InternalTorchDynamoError)  # why it is not given
    with raises:
        torch.compile(prints_in_a_hook, backend="eager")(x)


def test_compiled_autograd_is_not_advised_where_it_raises(tmp_path: Path) -> None:
    def backward(module: torch.nn.Module) -> None:
        torch.compile(module, backend="aot_eager")(torch.ones(2, 4, requires_grad=True)).sum().backward()

    with dynadiag.record(tmp_path / "run.dynadiag"):
        backward(Hooked())
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        (one,) = explain(recording).findings[0].advice
    assert (one.key, one.checked) == ("hook.forward_alone", "tried")
    torch._dynamo.reset()
    with config.patch(compiled_autograd=True), pytest.raises(AssertionError, match="requires CompiledAutograd"):
        backward(Hooked())


def test_a_hint_that_nobody_checked_says_whose_it_is() -> None:
    text = explanation_text(
        explain(FakeRecording(break_records=(a_break(gb_id=None, gb_type="Something new", hints=("Use another.",)),)))
    )
    assert "hint: Use another. (torch's own, unchecked)" in text
    assert "help: Use another." not in text


def test_a_request_for_a_bug_report_gives_way_to_advice() -> None:
    hints = ("Please file an issue on GitHub so the PyTorch team can add support for it.", "Use another.")
    unknown = a_break(gb_id=None, gb_type="Something new", hints=hints)
    assert [item.text for item in given(unknown)] == ["Use another."]
    assert [item.text for item in given(replace(unknown, hints=hints[:1]))] == [hints[0]]


def test_what_was_tried_on_such_a_break_comes_before_what_nobody_checked() -> None:
    found = given(a_break(hints=("This graph break is fundamental.", "Use `torch.cond`.", "Use another.")))
    assert [item.checked for item in found] == ["tried", "tried"]


def test_torchs_hints_are_given_where_there_is_no_remedy() -> None:
    unknown = a_break(gb_id=None, gb_type="Something new", hints=("This graph break is fundamental.", "Use another."))
    assert [(item.text, item.source) for item in given(unknown)] == [("Use another.", "torch")]


@pytest.mark.parametrize(
    ("name", "constant"),
    [
        ("posix.stat", True),
        ("sys.exit", False),
        ("time.sleep", False),
        ("<unknown module>.Random.random", False),
    ],
)
def test_a_function_of_pythons_own_library_is_moved_outside(name: str, constant: bool) -> None:
    builtin = f"Dynamo does not know how to trace the builtin `{name}.` This function is a Python builtin."
    hints = (
        "If it is a Python builtin, please file an issue on GitHub so the PyTorch team can add support for it.",
        "If it is a third-party C/C++ Python extension, please either wrap it into a custom operator.",
    )
    skipped = "Attempted to call function marked as skipped"
    item = a_break(gb_id="GB0007", gb_type=skipped, explanation=builtin, hints=hints)
    words = [each.text.partition(" ")[0] for each in given(item)]
    assert words == ["Move", *(["A"] if constant else [])]


@pytest.mark.parametrize("method", ["info", "warning_once"])
def test_the_method_of_a_logger_is_named_as_it_is_called(method: str) -> None:
    hints = ("Add the logging method to `torch._dynamo.config.ignore_logging_functions`.",)
    item = a_break(gb_id="GB0291", gb_type="logging", explanation="Not supported.", hints=hints, span=Span(FILE, 1, 0))
    (one,) = given(item, {FILE: f"log.{method}('at %s', x)\n"})
    assert f"add(logging.Logger.{method})" in one.text


@pytest.mark.parametrize(("operator", "by_mask"), [("nonzero", True), ("bincount", False), ("_unique2", False)])
def test_a_mask_is_advised_only_where_there_is_one(operator: str, by_mask: bool) -> None:
    text = f"Operator `aten.{operator}.default`'s output shape depends on input Tensor data."
    item = a_break(gb_id="GB0036", gb_type="Dynamic shape operator", explanation=text)
    assert any("mask" in each.text for each in given(item)) == by_mask


def test_no_advice_is_to_change_torchs_own_code() -> None:
    hints = ("Remove the `torch._dynamo.graph_break()` call.",)
    own = a_break(gb_id="GB0025", gb_type="Call to `torch._dynamo.graph_break()`", hints=hints)
    assert [item.checked for item in given(own)] == ["tried"]
    assert given(replace(own, span=Span("/env/site-packages/torch/optim/optimizer.py", 79))) == ()


def test_an_assertion_is_not_advised_on_as_a_branch() -> None:
    sources = {FILE: "def forward(x):\n    y = x\n    assert y.sum() > 0, y\n"}
    on_values = a_break(span=Span(FILE, 3, 11, 3, 22), hints=("Use `torch.cond`.",))
    assert [item.text[:18] for item in given(on_values, sources)] == ["Drop the assertion", "To keep it, use `t"]
    assert "torch.where" in given(on_values)[0].text  # without the source it is a branch


@pytest.mark.parametrize(
    ("types", "words"),
    [("'dict'", "Print after the compiled call"), ("'int'", "add(print)"), ("'str', 'Size'", "Print a text")],
)
def test_a_print_is_advised_on_by_the_types_that_it_prints(types: str, words: str) -> None:
    hint = "You can try adding it to `torch._dynamo.config.reorderable_logging_functions`."
    text = f"Dynamo does not know how to trace builtin operator `print` with argument types [{types}] (has_kwargs True)"
    item = a_break(gb_id="GB0059", gb_type="Failed to trace builtin operator", hints=(hint,), explanation=text)
    (one,) = given(item)
    assert words in one.text
    assert one.checked == "tried"


PRINTS = a_break(
    gb_id="GB0059",
    gb_type="Failed to trace builtin operator",
    explanation="Dynamo does not know how to trace builtin operator `print` with argument types ['str'] "
    "(has_kwargs False)",
)


def test_what_would_lose_output_is_not_advised_inside_activation_checkpointing() -> None:
    inside = replace(PRINTS, facts=replace(PRINTS.facts, within="tag_activation_checkpoint"))
    (one,) = given(inside)
    assert "outside of what `checkpoint` calls" in one.text
    assert "reorderable" not in one.text


def test_the_whole_of_a_function_is_not_moved_out_of_it() -> None:
    skipped = a_break(gb_id="GB0007", gb_type="Attempted to call function marked as skipped", span=Span(FILE, 2))
    alone, beside = "def f(x):\n    return g(x)\n", "def f(x):\n    y = g(x)\n    return y * 2\n"
    assert not [each for each in given(skipped, {FILE: alone}) if each.text.startswith("Move this out")]
    assert [each for each in given(skipped, {FILE: beside}) if each.text.startswith("Move this out")]


@pytest.mark.parametrize(
    ("body", "keys"),
    [
        ("n = int(x.max())\n    return torch.zeros(n)", ["item.capture", "item.pass"]),
        ("y = x * 2\n    n = int(y.max())\n    return torch.zeros(n)", ["item.capture"]),
        ("return y * x.sum().item()", ["item.tensor", "item.capture"]),
        ("print(x.sum().item())\n    return x", ["item.afterwards"]),
        ("self.peak = x.max().item()\n    return x", ["item.kept", "item.capture"]),
    ],
)
def test_what_a_number_is_for_decides_what_is_advised(body: str, keys: list[str]) -> None:
    source = f"def f(self, x, y):\n    {body}\n"
    line = next(number for number, text in enumerate(source.split("\n"), 1) if "max()" in text or "item()" in text)
    item = a_break(
        gb_id="GB0124",
        gb_type="Unsupported Tensor.item() call with capture_scalar_outputs=False",
        span=Span(FILE, line),
    )
    assert [each.key for each in given(item, {FILE: source})] == keys


def test_no_condition_of_a_conditional_expression_is_for_torch_cond() -> None:
    source = "def f(x):\n    return x + 1 if x.sum().item() > 3 else x\n"
    item = a_break(
        gb_id="GB0124",
        gb_type="Unsupported Tensor.item() call with capture_scalar_outputs=False",
        span=Span(FILE, 2, 20),
    )
    assert [each.key for each in given(item, {FILE: source})] == ["number.where"]


def test_a_branch_that_does_more_than_write_is_not_written_without_it(tmp_path: Path) -> None:
    def clips(v: torch.Tensor) -> torch.Tensor:
        clipped = v * 2
        if clipped.norm() > 1.0:
            clipped.mul_(0.5)
        return clipped + 1

    def clips_and_adds(v: torch.Tensor) -> torch.Tensor:
        clipped = v * 2
        if clipped.norm() > 1.0:
            clipped.mul_(0.5)
            clipped = clipped + 3
        return clipped + 1

    said = [" ".join(text for _, text in advice(tmp_path, fn)) for fn in (clips, clips_and_adds)]
    assert ["changes nothing where" in text for text in said] == [True, False]
    assert not any("torch.cond(" in text for text in said)


def test_a_backward_is_no_break_to_end_under_compiled_autograd(tmp_path: Path) -> None:
    weight = torch.ones(3, requires_grad=True)

    def trains(x: torch.Tensor) -> torch.Tensor:
        loss = (x * weight).square().sum()
        loss.backward()
        return loss.detach()

    with config.patch(compiled_autograd=True):
        said = advice(tmp_path, trains)
    assert [text for _, text in said if "this break is expected" in text]
    assert not [text for _, text in said if "after the compiled call" in text]


def test_an_operator_or_a_method_of_a_list_is_no_custom_operator(tmp_path: Path) -> None:
    def scales(x: torch.Tensor) -> torch.Tensor:
        return x * math.ceil(x.shape[0] * random.uniform(1, 2))

    texts = [each.text for item in recorded(tmp_path, scales).findings for each in item.advice]
    assert texts
    assert not any(said in "".join(texts) for said in ("custom_op", "assume_constant_result"))
    skipped = "Dynamo does not know how to trace the builtin `<unknown module>.list.append.` This function is either a "
    skipped += (
        "Python builtin (e.g. _warnings.warn) or a third-party C/C++ Python extension (perhaps created with pybind)."
    )
    kind = "Attempted to call function marked as skipped"
    texts = [each.text for each in given(a_break(gb_id="GB0007", gb_type=kind, explanation=skipped))]
    assert texts
    assert not any(said in "".join(texts) for said in ("custom_op", "assume_constant_result"))


def test_a_call_on_what_the_function_makes_cannot_stand_before_it(tmp_path: Path) -> None:
    def sized(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return y + sys.getsizeof(y)

    texts = "".join(text for _, text in advice(tmp_path, sized))
    assert "pass the result in" not in texts
    assert "This takes `y`, which the function makes." in texts


def test_captured_numbers_do_not_capture_sizes(tmp_path: Path) -> None:
    def picks(v: torch.Tensor) -> torch.Tensor:
        return v[v > v.max().item()] * 2

    with config.patch(capture_scalar_outputs=True):
        assert "capture_dynamic_output_shape_ops = True" in advice(tmp_path, picks)[0][1]
