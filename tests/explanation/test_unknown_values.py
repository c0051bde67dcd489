"""What is told where tracing would have to know a number that a tensor holds."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import dynadiag
from dynadiag.explanation.explanation import explain
from dynadiag.explanation.findings import Finding
from dynadiag.explanation.unknown_values import branch_decision, uses_of_number
from dynadiag.recording.records import Span
from tests.explanation.build import FILE, a_break, records

config = torch._dynamo.config
ONES = torch.ones(5)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    with config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        yield
    torch._dynamo.reset()


def by_a_name(x: torch.Tensor) -> torch.Tensor:
    total = x.sum().item()
    half = total / 2
    if half > 1:
        return x + 1
    return x


def by_a_call(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.sum().item() > 3 else x


def by_a_size(x: torch.Tensor) -> torch.Tensor:
    found = x.nonzero()
    if found.shape[0] > 3:
        return x + 1
    return x


def by_what_is_made_of_it(x: torch.Tensor) -> torch.Tensor:
    number = x.to(torch.int64).sum().item()
    zeros = torch.zeros(number)
    if zeros.numel():
        return x + 1
    return x


def by_its_count(x: torch.Tensor) -> torch.Tensor:
    number = x.to(torch.int64).sum().item()
    for i in range(int(number)):
        x = x + i
    return x


def told(folder: Path, *fns: Callable[..., Any], fullgraph: bool) -> list[Finding]:
    """The findings on these functions, each of which is compiled anew, as after a reset."""
    with dynadiag.record(folder / "run.dynadiag"):
        for fn in fns:
            torch._dynamo.reset()
            try:
                torch.compile(fn, backend="eager", fullgraph=fullgraph)(ONES)
            except Exception:  # noqa: BLE001 - the failed compile is what is told
                continue
    with dynadiag.open(folder / "run.dynadiag") as recording:
        return [item for item in explain(recording).findings if item.severity != "note"]


@pytest.mark.parametrize("fullgraph", [True, False])
def test_the_condition_and_where_its_number_comes_from_are_named(tmp_path: Path, fullgraph: bool) -> None:
    fns = (by_a_name, by_a_call, by_a_size, by_what_is_made_of_it, by_its_count)
    found = {item.function: item for item in told(tmp_path, *fns, fullgraph=fullgraph)}
    causes = {name: (item.cause or "").partition(", and tracing")[0].removesuffix(".") for name, item in found.items()}
    first = {fn.__name__: fn.__code__.co_firstlineno for fn in fns}
    assert {name: item.span.line for name, item in found.items()} == {
        "by_a_name": first["by_a_name"] + 3,
        "by_a_call": first["by_a_call"] + 1,
        "by_a_size": first["by_a_size"] + 2,
        "by_what_is_made_of_it": first["by_what_is_made_of_it"] + 3,
        "by_its_count": first["by_its_count"] + 2,
    }
    assert causes["by_a_name"] == (
        "`half > 1` cannot be decided while tracing: it depends on the number that `x.sum().item()` takes from a "
        f"tensor at line {first['by_a_name'] + 1}"
    )
    assert causes["by_a_call"].endswith("it depends on the number that `x.sum().item()` takes from a tensor")
    assert f"the size of `x.nonzero()` at line {first['by_a_size'] + 1}" in causes["by_a_size"]
    assert "`zeros.numel()` cannot be decided" in causes["by_what_is_made_of_it"]
    assert causes["by_its_count"].lower().startswith("this line needs the number that")


def test_advice_names_what_can_be_written(tmp_path: Path) -> None:
    found = {item.function: item for item in told(tmp_path, by_a_call, by_what_is_made_of_it, fullgraph=True)}
    texts = {name: " ".join(each.text for each in item.advice) for name, item in found.items()}
    assert "torch.where(x.sum() > 3, a, b)" in texts["by_a_call"]  # the tensor, not its number
    assert "torch._check" not in texts["by_a_call"]  # each `.item()` is another number
    assert "torch._check(zeros.numel() != 0)" in texts["by_what_is_made_of_it"]
    assert "torch.where" not in texts["by_what_is_made_of_it"]  # a size cannot be a tensor


def test_a_number_that_decides_a_branch_is_not_captured(tmp_path: Path) -> None:
    with config.patch(capture_scalar_outputs=False):
        (found,) = told(tmp_path, by_a_name, fullgraph=False)
    assert (found.cause or "").startswith("The number decides `half > 1` at line")
    assert all("Set `torch._dynamo.config.capture_scalar_outputs" not in each.text for each in found.advice)


def refuses_none(x: torch.Tensor) -> torch.Tensor:
    number = int((x > 0).sum())
    if number == 0:
        raise ValueError("nothing")
    return x + number


def refuses_in_the_other_side(x: torch.Tensor) -> torch.Tensor:
    if x.sum().item() < 100:
        x = x + 1
    else:
        raise ValueError("too much")
    return x


def test_of_a_side_that_only_raises_the_check_is_the_advice(tmp_path: Path) -> None:
    with config.patch(capture_scalar_outputs=False):
        found = told(tmp_path, refuses_none, refuses_in_the_other_side, fullgraph=False)
    texts = [" ".join(each.text for each in item.advice) for item in found]
    checks = ("torch._check(number != 0)", "torch._check(x.sum().item() < 100)")
    assert [check in text for check, text in zip(checks, texts, strict=True)] == [True, True]
    assert not any("torch.where" in text or "torch.cond" in text for text in texts)


def test_which_side_is_always_taken_is_not_guessed(tmp_path: Path) -> None:
    (found,) = told(tmp_path, by_a_name, fullgraph=False)
    text = " ".join(each.text for each in found.advice)
    assert "`torch._check(half > 1)` or `torch._check(half <= 1)`" in text


def beside_a_branch(x: torch.Tensor) -> torch.Tensor:
    scale = x.max().item()
    x = x / (1 + abs(scale))
    if x.sum() > 0:
        x = x + 1
    return x


def test_a_number_does_not_decide_a_branch_on_a_tensor_that_it_is_part_of(tmp_path: Path) -> None:
    """The branch breaks the graph itself. To capture the number is all that the other break needs."""
    with config.patch(capture_scalar_outputs=False):
        found = {item.id: item for item in told(tmp_path, beside_a_branch, fullgraph=False)}
    assert "decides" not in (found["GB0124"].cause or "")
    advice = " ".join(each.text for each in found["GB0124"].advice)
    assert "capture_scalar_outputs = True" in advice
    assert "torch._check" not in advice
    assert "torch.where" in found["GB0170"].advice[0].text


def test_a_branch_of_another_file_at_the_same_line_does_not_count() -> None:
    source = "def f(x):\n    n = x.sum().item()\n    if n > 3:\n        return x\n"
    taken = a_break(gb_type="Unsupported Tensor.item() call", span=Span(FILE, 2))
    for file, decides in (("other.py", True), (FILE, False)):
        run = records(breaks=(taken, a_break(1, span=Span(file, 3))), sources={FILE: source})
        assert (branch_decision(taken, run) is not None) == decides


@pytest.mark.parametrize(
    ("kept", "read", "uses"),
    [
        ("self.history.append(x.item())", "return x", {"store"}),
        ("self.history.append(x.item())", "best = self.history[-1] < self.best", {"store", "branch"}),
        ("self.last = x.item()", "if self.last > 0: return x", {"store", "branch"}),
        ("out.append(x.item())", "return torch.tensor(out)", {"store", "other"}),
        ("out.append(x.item())", "return out", {"store", "return"}),
        ("h, w = x.item(), 2", "return x[:h]", {"size"}),
        ("w, h = 2, x.item()", "return x[:w]", set()),
        ("self.last, h = x.item(), 2", "return x", {"store"}),
        ("sizes = x.tolist(); k = sizes[x.item()]", "return x", {"list"}),
    ],
)
def test_what_is_kept_is_followed_to_where_it_is_read(kept: str, read: str, uses: set[str]) -> None:
    source = f"def step(self, x, out):\n    before = self.history[0] * x\n    {kept}\n    {read}\n"
    column = source.splitlines()[2].index("x.item()")
    assert uses_of_number(source, Span(FILE, 3, column, 3, column + len("x.item()"))) == uses


@pytest.mark.parametrize(
    ("kept", "read", "decides"),
    [
        ("losses.append(x.item())", "if losses[-1] > losses[0]: return x", "losses[-1] > losses[0]"),
        ("losses[step] = x.item()", "if losses[step] > 1: return x", "losses[step] > 1"),
        ("self.loss = x.item()", "if self.loss > 1: return x", "self.loss > 1"),
        ("self.loss = x.item()", "if self.training: return x", None),
        ("losses.append(x.item())", "if other[0]: return x", None),
    ],
)
def test_a_number_that_is_kept_decides_what_reads_it(kept: str, read: str, decides: str | None) -> None:
    source = f"def step(self, x, losses, other):\n    {kept}\n    {read}\n"
    found = branch_decision(
        a_break(gb_type="Unsupported Tensor.item() call", span=Span(FILE, 2)), records(sources={FILE: source})
    )
    assert (found.condition if found else None) == decides
    assert found is None or found.is_direct


def test_a_size_that_the_caller_marked_comes_from_no_tensors_values(tmp_path: Path) -> None:
    def pools(x: torch.Tensor) -> torch.Tensor:
        doubled = x * 2
        count = doubled.shape[0]
        if count > 4:
            return doubled[:4].mean(0)
        return doubled.mean(0)

    given = torch.ones(6, 2)
    torch._dynamo.decorators.mark_unbacked(given, 0)
    with pytest.raises(Exception, match="data-dependent"), dynadiag.record(tmp_path / "run.dynadiag"):
        torch.compile(pools, backend="aot_eager", fullgraph=True)(given)
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        (item,) = explain(recording).findings
    assert (item.cause or "").removesuffix(".") == (  # a break on torch 2.11
        "`count > 4` cannot be decided while tracing: the size is unbacked, as `mark_unbacked` makes it"
    )
    assert "Mark the size dynamic" in item.advice[0].text


def test_a_list_of_numbers_that_decide_is_not_to_be_captured(tmp_path: Path) -> None:
    def finishes(x: torch.Tensor, best: torch.Tensor) -> Any:
        done = []
        for place, token in enumerate(best.tolist()):
            if token == 2:
                done.append(x[place])
        return x * 2, done

    config.capture_scalar_outputs = False
    with dynadiag.record(tmp_path / "run.dynadiag"):
        torch.compile(finishes, backend="aot_eager")(torch.ones(3, 2), torch.tensor([1, 2, 0]))
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        item = explain(recording).findings[0]
    assert item.rule == "break"
    assert not any("capture_scalar_outputs" in each.text for each in item.advice)


def test_a_number_of_a_tensor_beside_one_that_is_drawn_is_the_cause(tmp_path: Path) -> None:
    def scales(x: torch.Tensor) -> torch.Tensor:
        factor = random.randint(1, 3)
        number = x.max().item() * factor
        return x + number

    def cuts(x: torch.Tensor) -> torch.Tensor:
        length = random.randint(1, 2)
        return x[:length].sin()

    with config.patch(capture_scalar_outputs=False):
        drawn, taken = told(tmp_path, scales, cuts, fullgraph=False)
    assert (taken.cause or "").startswith("`x.max().item()` takes a number out of a tensor")
    assert (drawn.cause or "").startswith("`length` is drawn at random at line ")


def test_what_math_asks_of_a_number_is_asked_of_the_tensor_by_torch(tmp_path: Path) -> None:
    def zeroes(x: torch.Tensor) -> torch.Tensor:
        loss = x.sum()
        if math.isnan(loss.item()):
            loss = torch.zeros(())
        return loss * 2

    with config.patch(capture_scalar_outputs=False):
        (item,) = told(tmp_path, zeroes, fullgraph=False)
    assert "torch.where(torch.isnan(loss) != 0, a, b)" in item.advice[0].text
    assert "math." not in "".join(each.text for each in item.advice)


def test_what_the_function_goes_on_with_is_not_only_kept(tmp_path: Path) -> None:
    def gathers(x: torch.Tensor) -> torch.Tensor:
        parts = []
        for part in x.split(x.int().tolist()):
            if part.shape[0] == 0:
                parts.append(torch.zeros(()))
            else:
                parts.append(part.mean())
        return torch.stack(parts)

    config.capture_scalar_outputs = True
    (item,) = told(tmp_path, gathers, fullgraph=False)
    assert "part.shape[0] == 0" in (item.cause or "")
    assert "only shows or keeps" not in "".join(each.text for each in item.advice)


def test_a_counter_of_what_keeps_a_number_is_not_decided_by_it() -> None:
    source = "\n".join(
        (
            "def step(self, x, mode):",
            "    self.kept[mode].add(x.mean().item())",
            "    if self.kept[mode].count % 2 == 0:",
            "        log(mode)",
            "    self.values.append(x.max().item())",
            "    if self.values[-1] > 3:",
            "        x = x * 2",
            "    return x",
        )
    )
    taken = "Unsupported Tensor.item() call with capture_scalar_outputs=False"
    kept, last = (a_break(gb_type=taken, span=Span(FILE, line)) for line in (2, 5))
    run = records(breaks=(kept, last), sources={FILE: source})
    assert branch_decision(kept, run) is None
    decision = branch_decision(last, run)
    assert decision is not None
    assert decision.line == 6
