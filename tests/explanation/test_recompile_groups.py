"""Recompiles that one paragraph tells of: those of one function for one change, and those that used up its limit."""

from __future__ import annotations

import collections
import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

import dynadiag
from dynadiag.explanation.advice_on_recompiles import advise_on
from dynadiag.explanation.explanation import explain
from dynadiag.explanation.findings import Finding
from dynadiag.explanation.rebinding import assignment, counted_inside
from dynadiag.explanation.recompile_case import Symbols, cases_of
from dynadiag.explanation.tensor_remedies import markable_sizes
from dynadiag.recording.records import GuardFailure, Span
from tests.explanation.build import a_failure, a_recompile

x = torch.ones(3)


class Mode(enum.Enum):
    FAST = 1
    EXACT = 2


@dataclass
class Batch:
    kind: str


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def found(folder: Path, fn: Callable[..., Any], *calls: tuple[Any, ...], **options: Any) -> list[Finding]:
    compiled = torch.compile(fn, **{"backend": "eager", **options})
    with dynadiag.record(folder / "run.dynadiag"):
        for arguments in calls:
            compiled(*arguments)
    with dynadiag.open(folder / "run.dynadiag") as recording:
        return [item for item in explain(recording).findings if item.severity != "note"]


def advice_of(item: Finding) -> str:
    return "\n".join(each.text for each in item.advice)


def test_a_size_that_changes_beside_a_size_of_one_is_told_as_itself(tmp_path: Path) -> None:
    def double(v: torch.Tensor) -> torch.Tensor:
        return v * 2

    one, other = found(tmp_path, double, *((torch.ones(size),) for size in (4, 1, 5)))
    assert "sizes 0 and 1 apart" in advice_of(one)
    assert "The size changes" in advice_of(other)
    assert "was 4, now 5, then a symbol" in other.evidence[0].text


def test_a_size_that_torch_made_a_symbol_is_not_told_as_a_number(tmp_path: Path) -> None:
    def last(v: torch.Tensor, before: list[torch.Tensor]) -> torch.Tensor:
        return (v + before[-1] if before else v) * 2

    one, other = torch.ones(4, 1), torch.ones(4, 9)
    items = found(tmp_path, last, (torch.ones(4, 5), []), (one, [one]), (one, [one, one]), (other, []))
    assert "Each size of" not in "".join(map(advice_of, items))
    assert "The size changes" in advice_of(items[-1])


class Ring:
    def __init__(self) -> None:
        self.cursor = 0

    def write(self, v: torch.Tensor) -> torch.Tensor:
        at = v + self.cursor
        self.cursor = (self.cursor + v.shape[0]) % 100
        return at


def test_a_number_that_is_counted_up_is_no_cache_to_be_set_before(tmp_path: Path) -> None:
    ring = Ring()
    (only,) = found(tmp_path, lambda r, v: r.write(v), (ring, x), (ring, x), (ring, x))
    assert "The integer `r.cursor` changed. From now on torch makes such an integer a symbol" in advice_of(only)
    assert "before the first call, outside" not in advice_of(only)


def test_a_number_that_was_none_at_first_is_a_symbol_from_its_second_value_on(tmp_path: Path) -> None:
    class Schedule:
        index: int | None = None

        def step(self, v: torch.Tensor) -> torch.Tensor:
            self.index = 1 if self.index is None else self.index + 1
            return v * self.index

    schedule = Schedule()
    items = found(tmp_path, lambda s, v: s.step(v), *((schedule, x) for _ in range(5)))
    assert [item.compile_ids for item in items] == [("0/1",), ("0/2",)]
    assert "From now on torch makes such an integer a symbol" in advice_of(items[-1])
    assert "each value compiled apart" not in "".join(map(advice_of, items))


def inner(v: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    return v * 2


def outer(v: torch.Tensor) -> torch.Tensor:
    small, large = v + 1, v[:, :1] * 3
    return inner(small) + inner(large)


def test_no_size_of_what_compiled_code_passes_on_is_told_to_be_marked(tmp_path: Path) -> None:
    """torch refuses to trace the call that marks it."""
    items = found(tmp_path, outer, (torch.ones(4, 5),), (torch.ones(6, 5),))
    texts = {item.function: advice_of(item) for item in items if item.rule == "recompile"}
    assert "mark_dynamic(v, 0)" in texts["outer"]
    assert "expect one compile for such calls, or avoid them (pad)" in texts["inner"]
    assert "mark_" not in texts["inner"]


def test_all_instances_that_share_a_limit_are_counted(tmp_path: Path) -> None:
    class Act(torch.nn.Module):
        def __init__(self, act: torch.nn.Module) -> None:
            super().__init__()
            self.act = act

        def forward(self, v: torch.Tensor, key: str) -> torch.Tensor:
            return self.act(v) * len(key)

    acts = [Act(kind()) for kind in (torch.nn.ReLU, torch.nn.GELU, torch.nn.SiLU)]
    with dynadiag.record(tmp_path / "run.dynadiag"):
        for act, key in zip(acts, ("a", "b", "a"), strict=True):
            torch.compile(act, backend="eager")(x, key)
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        facts = [each.text for item in explain(recording).findings for each in item.evidence]
    assert {text.partition(" objects")[0] for text in facts if "objects as `self`" in text} == {"3"}


def test_what_a_helper_is_compiled_again_for_behind_a_break_is_told_at_the_limit_too(tmp_path: Path) -> None:
    def keyed(v: torch.Tensor, key: str) -> torch.Tensor:
        return v * len(key)

    def loops(v: torch.Tensor) -> torch.Tensor:
        for number in range(12):
            v = keyed(v, "k" * (number + 1))
            torch._dynamo.graph_break()
        return v

    (limit,) = [each for each in found(tmp_path, loops, (x,)) if each.rule == "recompile-limit"]
    assert "is compiled by itself only because the break" in advice_of(limit)


def test_what_used_up_the_limit_is_told_where_torch_gave_up(tmp_path: Path) -> None:
    def scale(v: torch.Tensor, name: str) -> torch.Tensor:
        return v * len(name)

    (only,) = found(tmp_path, scale, *((x, "n" * number) for number in range(1, 11)))
    assert (only.rule, len(only.records)) == ("recompile-limit", 8)
    assert [each.text for each in only.evidence if each.label == "again"] == [
        "0/1, 0/2, 0/3, 0/4, 0/5, 0/6 and 1 more before it"
    ]


def test_what_changed_beside_the_same_change_is_told_with_it(tmp_path: Path) -> None:
    def scale(v: torch.Tensor, a_name: str, z_flag: bool) -> torch.Tensor:
        scaled = v * len(a_name)
        return scaled if z_flag else -scaled

    (only,) = found(tmp_path, scale, (x, "a", True), (x, "b", True), (x, "c", False))
    assert only.compile_ids == ("0/1", "0/2")
    assert [each.text for each in only.evidence if each.label == "beside"] == ["in some of them also: z_flag changed"]


def test_a_list_that_goes_on_growing_is_not_advised_to_be_filled_before(tmp_path: Path) -> None:
    history: list[torch.Tensor] = []

    def remember(v: torch.Tensor) -> torch.Tensor:
        history.append(v)
        return torch.stack(history).sum(0)

    (only,) = found(tmp_path, remember, (x,), (x,), (x,))
    assert "adds an item to `history`" in advice_of(only)
    assert "before the first compiled call" not in advice_of(only)


def test_a_loop_count_is_never_said_to_become_a_symbol(tmp_path: Path) -> None:
    def loop(v: torch.Tensor, count: int) -> torch.Tensor:
        for _ in range(count):
            v = v + 1
        return v

    (only,) = found(tmp_path, loop, (x, 2), (x, 3), (x, 4))
    assert "how often a loop runs" in advice_of(only)
    assert "a symbol" not in advice_of(only)


def test_another_member_of_an_enum_is_no_shared_tensor(tmp_path: Path) -> None:
    def choose(v: torch.Tensor, mode: Mode) -> torch.Tensor:
        return v + 1 if mode is Mode.FAST else v - 1

    (only,) = found(tmp_path, choose, (x, Mode.FAST), (x, Mode.EXACT))
    assert "same tensor" not in advice_of(only)
    assert "`mode` is a constant of the code" in advice_of(only)


def test_a_member_of_an_enum_as_a_key_is_no_shared_tensor(tmp_path: Path) -> None:
    """Nor are its own attributes changes beside it."""
    calls: dict[Mode, int] = {}

    def choose(v: torch.Tensor, mode: Mode) -> torch.Tensor:
        calls[mode] = calls.get(mode, 0) + 1
        return v + 1 if mode is Mode.FAST else v - 1

    items = found(tmp_path, choose, (x, Mode.FAST), (x, Mode.FAST), (x, Mode.EXACT), (x, Mode.FAST))
    told = "\n".join([*(item.title for item in items), *map(advice_of, items)])
    assert "same tensor" not in told
    assert "_name_" not in told


def test_an_attribute_of_an_argument_may_be_another_in_each_call(tmp_path: Path) -> None:
    def choose(v: torch.Tensor, batch: Batch) -> torch.Tensor:
        return v + 1 if batch.kind == "text" else v - 1

    (only,) = found(tmp_path, choose, (x, Batch("text")), (x, Batch("image")))
    assert "To switch between a few values" in advice_of(only)


def power(v: torch.Tensor, n: int) -> torch.Tensor:
    return v ** (n + 2)


def test_a_function_is_compiled_apart_only_because_its_caller_breaks(tmp_path: Path) -> None:
    def loop(v: torch.Tensor) -> torch.Tensor:
        for n in range(3):
            torch._dynamo.graph_break()
            v = power(v, n)
        return v

    split, again = found(tmp_path, loop, (x,))
    assert (split.rule, again.function) == ("break", "power")
    assert f"only because the break at `test_recompile_groups.py:{split.span.line}`" in advice_of(again)


def test_a_function_that_meets_a_break_anyway_is_not_put_down_to_that_of_its_caller(tmp_path: Path) -> None:
    """The optimizers of torch meet one of torch's own, at no cost, wherever they are called from."""
    weight = torch.nn.Parameter(x.clone())
    optimizer = torch.optim.SGD([weight], lr=0.5)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)

    def step() -> torch.Tensor:
        weight.grad = weight.detach() * 2
        torch._dynamo.graph_break()
        optimizer.step()  # `schedule` has wrapped it in a function that Dynamo skips
        return weight * 1

    compiled = torch.compile(step, backend="eager")
    with dynadiag.record(tmp_path / "run.dynadiag"):
        for _ in range(2):
            compiled()
            schedule.step()
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        told = explain(recording).findings
    (again,) = (item for item in told if item.function == "SGD.step" and item.rule == "recompile")
    assert "only because the break" not in advice_of(again)


def test_a_dtype_behind_a_break_follows_from_that_before_it(tmp_path: Path) -> None:
    def scale(v: torch.Tensor) -> torch.Tensor:
        doubled = v * 2
        torch._dynamo.graph_break()
        return doubled.sum()

    _, again = found(tmp_path, scale, (x,), (x.double(),))
    assert "v.dtype" in again.title


def test_a_mode_that_changes_is_no_fault_of_a_break(tmp_path: Path) -> None:
    def loop(v: torch.Tensor) -> torch.Tensor:
        for n in range(1):
            torch._dynamo.graph_break()
            v = power(v, n)
        return v

    compiled = torch.compile(loop, backend="eager")
    with dynadiag.record(tmp_path / "run.dynadiag"):
        compiled(x)
        with torch.no_grad():
            compiled(x)
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        again = next(item for item in explain(recording).findings if item.rule == "recompile")
    assert "only because" not in advice_of(again)


class First(torch.nn.Module):
    def forward(self, v: torch.Tensor) -> torch.Tensor:
        return v + 1


class Second(First):
    pass


class Third(First):
    pass


def test_an_exception_at_the_limit_is_the_finding_on_its_recompiles(tmp_path: Path) -> None:
    compiled = torch.compile(lambda module, v: module(v), backend="eager", fullgraph=True)

    def calls() -> None:
        for kind in (First, Second, Third):
            compiled(kind(), x)

    with (
        torch._dynamo.config.patch(recompile_limit=2),
        dynadiag.record(tmp_path / "run.dynadiag"),
        pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit),
    ):
        calls()
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        made = explain(recording)
    (item,) = made.findings
    assert (item.rule, item.severity, len(item.records)) == ("recompile-limit", "error", 2)
    assert item.title.endswith("failed at the recompile limit: module changed")
    assert "module was Second, First, now Third" in item.evidence[0].text
    assert "Pass one type always" in advice_of(item)
    assert "failed at the recompile limit" in made.headline.sentence


def test_what_a_newer_variant_accepts_is_not_told_again(tmp_path: Path) -> None:
    """The code for None is no news at the third call: the second made code for a tensor."""

    def add(v: torch.Tensor, other: torch.Tensor | None) -> torch.Tensor:
        return v if other is None else v + other

    _, last = found(tmp_path, lambda v, other: add(v + 1, other), (x, None), (x, x), (torch.ones(5), torch.ones(5)))
    assert next(each.text for each in last.evidence if each.label == "guard" and not each.detail).startswith("v.size")
    assert not any("None" in each.text for each in last.evidence)


def test_the_rest_of_a_function_follows_whatever_was_computed_before_it(tmp_path: Path) -> None:
    def pad(v: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        number = int(v.sum())
        return torch.zeros(number) + other.sum()

    _, first = found(tmp_path, pad, (torch.ones(4), torch.ones(4)), (torch.ones(5), torch.ones(5)))
    assert first.title.endswith("pad: v.size()[0] changed")
    assert "mark_dynamic(v, 0)`, `torch._dynamo.mark_dynamic(other, 0)" in advice_of(first)


def test_an_argument_behind_a_break_follows_from_it_whatever_was_computed(tmp_path: Path) -> None:
    def halves(v: torch.Tensor) -> torch.Tensor:
        h = torch.cat([v, v], -1)
        torch._dynamo.graph_break()
        return v + h[..., 1::2]

    calls = [(torch.ones(2, size, 4),) for size in (3, 5)]
    _, only = found(tmp_path, halves, *calls)
    assert only.title.endswith("v.size()[1] changed")
    assert "dynamic=True" in advice_of(only)
    assert "mark_dynamic" not in advice_of(only)
    torch._dynamo.reset()
    (tmp_path / "dynamic").mkdir()
    (only,) = found(tmp_path / "dynamic", halves, *calls, dynamic=True)
    assert only.rule == "break"
    torch._dynamo.reset()
    torch._dynamo.mark_dynamic(calls[0][0], 1)
    with pytest.raises(ConstraintViolationError):
        torch.compile(halves, backend="eager")(*calls[0])


def test_what_was_computed_before_a_break_cannot_be_marked() -> None:
    sizes = [
        a_failure("", source=f"L['{name}'].size()[0]", part="size", subject=f"L['{name}']", index="0", was="4", now="5")
        for name in ("h", "v")
    ]
    (case,) = cases_of(a_recompile(reasons=tuple(sizes)), computed={"h"})
    assert [fact.subject for fact in markable_sizes(case)] == ["L['v']"]


@pytest.mark.parametrize(("needed_in", "told"), [(("0/0",), True), (("0/0", "0/2"), False)])
def test_a_size_that_each_variant_needs_is_not_told_to_share_a_symbol(needed_in: tuple[str, ...], told: bool) -> None:
    """The two sizes are equal in one call only."""
    source = "L['v'].size()[0]"
    size = a_failure("", source=source, part="size", subject="L['v']", index="0", was="2", now="13")
    item = a_recompile(reasons=(replace(size, dynamic="always"),))
    symbols = Symbols(frozenset({(item.compile_id, source)}), {(each, source): () for each in needed_in})
    (case,) = cases_of(item, changing={source}, symbols=symbols)
    texts = [each.text for each in advise_on([case])]
    assert ["equal sizes share one symbol" in each for each in texts] == [True] * told


def test_the_layout_of_a_tensor_goes_with_its_size(tmp_path: Path) -> None:
    (only,) = found(tmp_path, lambda v: v * 2, (torch.ones(3, 4)[:, :2],), (torch.ones(3, 5),))
    assert "contiguous" not in advice_of(only)
    assert only.title.endswith("v.size()[1] changed")


def test_a_number_that_an_operator_needs_later_is_no_symbol_at_first(tmp_path: Path) -> None:
    """The second call makes the number a symbol, and the code for it asks for the number all the same."""

    def draw(v: torch.Tensor, rate: float) -> torch.Tensor:
        return v.new_empty(2).bernoulli_(1 - rate)

    first, *_ = found(tmp_path, draw, (x, 0.25), (x, 0.5), (x, 0.75))
    assert "each value compiled apart" in advice_of(first)


def test_a_flag_that_is_set_again_at_the_top_of_a_file_is_assigned_there() -> None:
    source = "FLAG = True\ndef f(x):\n    return x if FLAG else -x\nFLAG = False\n"
    fact = GuardFailure("", "G['FLAG']", "True", "False", "0/0", "f.py", 3, None, "value", "G['FLAG']", base="global")
    assert assignment(fact, {"f.py": source}) == Span("f.py", 4)


def test_an_entry_is_as_near_as_all_that_it_failed_by(tmp_path: Path) -> None:
    """The last call fails the entry for a single row by its size as well, and two others by one change alone."""

    def double(v: torch.Tensor) -> torch.Tensor:
        return v * 2

    def run(v: torch.Tensor, gradients: bool) -> torch.Tensor:
        with torch.set_grad_enabled(gradients):
            return compiled(v)

    compiled = torch.compile(double, backend="eager", dynamic=True)
    rows, trained = torch.ones(5, 4), torch.ones(5, 4, requires_grad=True)
    with dynadiag.record(tmp_path / "run.dynadiag"):
        for v, gradients in ((rows, False), (rows, True), (rows[-1:], True), (trained, False), (trained, True)):
            run(v, gradients)
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        first, *_ = explain(recording).findings
    assert first.compile_ids == ("0/1", "0/4")
    assert [fact.text for fact in first.evidence if fact.label in ("again", "beside")] == [
        "in 0/4, for the same reason"
    ]
    assert "mark_unbacked" not in advice_of(first)


def test_many_sizes_of_one_are_not_to_be_marked_one_by_one(tmp_path: Path) -> None:
    def adds_all(vs: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack([v.sum() for v in vs])

    given = ([torch.ones(size, 3) for _ in range(5)] for size in (1, 2))
    (item,) = found(tmp_path, adds_all, *((each,) for each in given))
    assert "sizes 0 and 1" in advice_of(item)
    assert "mark_unbacked" not in advice_of(item)


def test_the_length_of_a_list_that_was_made_before_a_break_follows_from_it(tmp_path: Path) -> None:
    def scales(vs: list[Any]) -> Any:
        kept = [v * 2 for v in vs if v is not None]
        torch._dynamo.graph_break()
        return [v + 1 for v in kept]

    path = tmp_path / "run.dynadiag"
    compiled = torch.compile(scales, backend="eager")
    with dynadiag.record(path):
        for given in ([x, None], [x, x]):
            compiled(given)
    with dynadiag.open(path) as recording:
        rest = next(item for item in explain(recording).findings if "kept changed" in item.title)
    assert (rest.severity, rest.caused_by is None) == ("note", False)


def test_what_is_taken_out_again_is_not_told_as_added(tmp_path: Path) -> None:
    names: list[str] = []

    def scoped(v: torch.Tensor) -> torch.Tensor:
        names.append("scope")
        try:
            return v * len(names)
        finally:
            names.pop()

    compiled = torch.compile(scoped, backend="eager")
    with dynadiag.record(tmp_path / "run.dynadiag"):
        compiled(x)
        names.append("outer")
        compiled(x)
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        (item,) = [each for each in explain(recording).findings if each.severity != "note"]
    assert "names changed" in item.title
    assert "itself adds" not in advice_of(item)
    assert "Fill it before" not in advice_of(item)


def test_a_key_of_keyword_arguments_is_no_attribute(tmp_path: Path) -> None:
    def scaled(v: torch.Tensor, **axes: int) -> torch.Tensor:
        return v * sum(tuple(axes.values())) + len(tuple(axes.items()))

    compiled = torch.compile(scaled, backend="eager")
    with dynadiag.record(tmp_path / "run.dynadiag"):
        compiled(x, h=2)
        compiled(x)
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        (item,) = [each for each in explain(recording).findings if each.severity != "note"]
    assert "__init__" not in advice_of(item)
    assert "the keyword argument `h`" in advice_of(item)


def test_a_filled_cache_does_not_help_a_call_of_one_token(tmp_path: Path) -> None:
    class Cache:
        def __init__(self) -> None:
            self.is_initialized = False

    def step(v: torch.Tensor, cache: Cache) -> torch.Tensor:
        first = not cache.is_initialized
        cache.is_initialized = True
        return v + first

    cache = Cache()
    (item,) = found(tmp_path, step, (torch.ones(2, 5), cache), (torch.ones(2, 1), cache))
    assert "was set by the first call" in item.title
    assert "Or initialize it" not in advice_of(item)
    assert "`v.size()[1]` was 5 and is 1 now" in advice_of(item)


def test_sizes_of_one_are_to_be_marked_together(tmp_path: Path) -> None:
    def double(v: torch.Tensor) -> torch.Tensor:
        return v * 2

    (item,) = found(tmp_path, double, (torch.ones(1, 1),), (torch.ones(3, 2),))
    assert len(item.advice) == 1
    assert "mark_unbacked(v, 0)" in advice_of(item)
    assert "mark_unbacked(v, 1)" in advice_of(item)


def test_numbers_from_before_a_break_and_the_sizes_beside_them_follow_from_it() -> None:
    terms = ("L['___stack0'][1]", "L['x'].size()[0]")
    condition = a_failure(guard="L['___stack0'][1] + 1 == L['x'].size()[0]", part="shape", terms=terms, now="4")
    (case,) = cases_of(a_recompile(reasons=(condition,)))
    assert case.sort == "computed size"


def test_several_numbers_are_told_in_the_plural(tmp_path: Path) -> None:
    class Scales(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = self.b = 0.5

        def forward(self, v: torch.Tensor) -> torch.Tensor:
            return v * 2 if self.a == 0.5 and self.b == 0.5 else v.new_full((int(self.a * 8),), int(self.b * 8))

    module = Scales()
    compiled = torch.compile(module, backend="aot_eager")  # which needs the numbers
    with dynadiag.record(tmp_path / "run.dynadiag"):
        for number in (0.5, 0.25, 0.125):
            module.a = module.b = number
            compiled(x)
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        advice = "".join(advice_of(each) for each in explain(recording).findings)
    assert "`self.a`, `self.b` are part of the code and changed" in advice


def test_the_line_that_needs_a_size_as_a_number_is_named(tmp_path: Path) -> None:
    def collects(v: torch.Tensor, seen: set[int]) -> torch.Tensor:
        v = v * 2
        seen.add(v.shape[0])
        return v

    seen: set[int] = set()
    *_, last = found(tmp_path, collects, *((torch.ones(size), seen) for size in (4, 5, 6)))
    line = collects.__code__.co_firstlineno + 2
    assert f"needs it as a number (`test_recompile_groups.py:{line}`)" in advice_of(last)
    assert "itself adds an item to `seen`" in advice_of(last)


def test_weights_that_are_untied_are_two(tmp_path: Path) -> None:
    first, second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    second.weight = first.weight
    net = torch.nn.Sequential(first, second)
    compiled = torch.compile(net, backend="eager")
    with dynadiag.record(tmp_path / "run.dynadiag"):
        compiled(x)
        second.weight = torch.nn.Parameter(first.weight.detach().clone())
        compiled(x)
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        (item,) = [each for each in explain(recording).findings if each.severity != "note"]
    assert "were one object, and are two now" in item.evidence[0].text
    assert "were one tensor in one call and two in the other" in advice_of(item)


class Noted(torch.nn.Module):
    """A module that keeps the largest number of each name, in a dict that compiled code adds to."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: dict[str, float] = {}

    def note(self, name: str, value: float) -> None:
        self.notes[name] = max(self.notes.get(name, value), value)

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        self.note("peak", v.size(0) * 1.0)
        return v * 2


def test_a_key_that_compiled_code_asks_for_and_adds_is_told_once(tmp_path: Path) -> None:
    (item,) = found(tmp_path, Noted(), (x,), (x,))
    (text,) = (each.text for each in item.advice)
    assert text.startswith("The compiled code itself adds the key `'peak'` to `self.notes`")


HITS: collections.Counter[str] = collections.Counter()


def test_counts_by_a_key_are_counted_by_the_compiled_code(tmp_path: Path) -> None:
    def scaled(v: torch.Tensor, kind: str) -> torch.Tensor:
        HITS[kind] += 1
        return v * HITS[kind]

    HITS.clear()
    items = found(tmp_path, scaled, (x, "a"), (x, "a"), (x, "a"))
    assert [each.advice[0].key for each in items] == ["items.added", "value.counted"]
    assert "counts `HITS['a']` up" in items[1].advice[0].text


def test_a_count_that_is_assigned_is_counted_by_the_compiled_code() -> None:
    lines = ("seen = {}", "def f(x, kind):", "    seen[kind] = seen.get(kind, 0) + 1", "    other[kind] = 1")
    counted = a_failure("G['seen']['a'] == 1", file="p.py", line=3)
    assert counted_inside(counted, {"p.py": "\n".join(lines)}) == Span("p.py", 3)
    other = a_failure("G['other']['a'] == 1", file="p.py", line=4)
    assert counted_inside(other, {"p.py": "\n".join(lines)}) is None


def test_a_size_that_met_a_new_tensor_once_is_no_number_of_the_code(tmp_path: Path) -> None:
    def step(v: torch.Tensor, batch: Batch, extra: torch.Tensor) -> torch.Tensor:
        return v * 2 + extra if batch.kind == "decode" else v.cumsum(0)

    sizes = ((6, "extend"), (2, "decode"), (3, "decode"), (9, "extend"))
    items = found(tmp_path, step, *((torch.ones(n), Batch(kind), torch.ones(n)) for n, kind in sizes))
    advice = "".join(map(advice_of, items))
    assert "as a number" not in advice
    assert "Sizes change: `torch.compile(..., dynamic=True)`" in advice


def test_a_branch_on_what_is_computed_of_a_size_is_no_chance(tmp_path: Path) -> None:
    def halves(v: torch.Tensor) -> torch.Tensor:
        return v[: v.shape[0] // 2 * 2] if v.shape[0] // 2 * 2 != v.shape[0] else v * 2

    *_, item = found(tmp_path, halves, *((torch.ones(n),) for n in (4, 6, 7)))
    assert "went together" not in advice_of(item)
    assert "a branch on it" in advice_of(item)


def test_a_dict_with_fewer_keys_is_one_change(tmp_path: Path) -> None:
    def total(feats: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.stack(list(feats.values())).sum()

    (item,) = found(tmp_path, total, ({"a": x, "b": x, "c": x},), ({"a": x},))
    assert item.title.endswith("feats changed")
    assert len(item.advice) == 1
    assert "other keys" in advice_of(item)


class Holder:
    def __init__(self, **items: Any) -> None:
        self.items = items


def test_a_dict_that_an_object_holds_is_filled_before(tmp_path: Path) -> None:
    def step(v: torch.Tensor, held: Holder) -> torch.Tensor:
        return v * held.items["w"]["step"] + len(held.items)

    held = Holder(w={"step": 1})
    compiled = torch.compile(step, backend="eager")
    with dynadiag.record(tmp_path / "run.dynadiag"):
        compiled(x, held)
        held.items |= {"w": {"step": 2}, "b": {"step": 1}}
        compiled(x, held)
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        (item,) = [each for each in explain(recording).findings if each.severity != "note"]
    assert "held.items was length 1, now length 2" in "".join(each.text for each in item.evidence)
    assert "another number of items than in the call before" in advice_of(item)


def test_an_item_that_a_cache_drops_is_no_attribute_to_define() -> None:
    (advice,) = advise_on(cases_of(a_recompile("L['self'].cache[4] exists")))
    assert advice.text.startswith("What `self.cache` contains changed")
    (advice,) = advise_on(cases_of(a_recompile("L['self'].table exists")))
    assert "(in `__init__`)" in advice.text


def test_tensors_that_come_and_go_have_one_paragraph(tmp_path: Path) -> None:
    def either(a: torch.Tensor | None, b: torch.Tensor | None, rate: float) -> torch.Tensor:
        return (x if a is None else a * 2) + (x if b is None else b * 3) * rate

    (item,) = found(tmp_path, either, (x, None, 0.5), (None, x, 0.25))
    none, rate = item.advice
    assert none.text.startswith("`a`, `b` were None in one call")
    assert "float `rate`" in rate.text


def test_a_closed_over_integer_that_becomes_a_symbol_has_its_name(tmp_path: Path) -> None:
    def loss(step: int) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda v: v * step if step % 2 == 0 else v + step

    def train(fn: Callable[[torch.Tensor], torch.Tensor], v: torch.Tensor) -> torch.Tensor:
        return fn(v)

    first, other = found(tmp_path, train, *((loss(step), x) for step in (2, 3, 4)))
    assert "one compile for each" not in advice_of(first)
    assert "`step` changed. From now on torch makes such an integer a symbol" in advice_of(first)
    assert other.title.endswith(": `(step % 2) != 0` no longer holds")


def test_the_object_of_a_bound_method_changes_with_it(tmp_path: Path) -> None:
    (case,) = cases_of(a_recompile("L['batch'].mode == 1", "L['batch'].mode.is_exact.__self__ == 1"))
    assert [change.fact.source for change in case.changes] == ["L['batch'].mode"]


def test_parameters_of_another_instance_are_expected_to_differ(tmp_path: Path) -> None:
    small, large = (torch.nn.Linear(n, n) for n in (3, 4))

    def call(layer: torch.nn.Linear, v: torch.Tensor) -> torch.Tensor:
        return layer(v)

    (item,) = found(tmp_path, call, (small, torch.ones(2, 3)), (large, torch.ones(2, 4)))
    assert "is a parameter of another instance" in advice_of(item)
    assert "Expect one compile for each instance" in advice_of(item)


class Kept(torch.nn.Module):
    """A layer that picks its own item of a list that all layers share."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index

    def pick(self, items: list[torch.Tensor], number: int) -> torch.Tensor:
        return items[number]

    def forward(self, v: torch.Tensor, items: list[torch.Tensor]) -> torch.Tensor:
        return v + self.pick(items, self.index)


def test_an_index_of_each_instance_is_no_symbol_by_any_setting(tmp_path: Path) -> None:
    with dynadiag.record(tmp_path / "run.dynadiag"):
        for layer in (Kept(0), Kept(1), Kept(2)):
            torch.compile(layer, backend="eager")(x, [x, x + 1, x + 2])
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        texts = [each.text for item in explain(recording).findings for each in item.advice]
    assert any(text.startswith("Each instance has an integer `self.index`") for text in texts)
    assert not any("allow_unspec_int_on_nn_module" in text for text in texts)


def test_what_a_library_passes_is_not_to_be_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes the tensors itself, or copies them, and a mark is gone with the tensor that has it."""
    package = tmp_path / "site-packages" / "generating"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("def generate(model, tokens):\n    return model(tokens.clone())\n")
    monkeypatch.syspath_prepend(str(package.parent))
    import generating  # type: ignore[import-not-found]

    model = torch.compile(lambda tokens: tokens * 2, backend="eager")
    with dynadiag.record(tmp_path / "run.dynadiag"):
        for length in (4, 6, 1):
            generating.generate(model, torch.ones(2, length))
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        changed, one = (item for item in explain(recording).findings if item.rule == "recompile")
    assert advice_of(changed).startswith("Sizes change: `torch.compile(..., dynamic=True)`")
    assert "or avoid them (pad)" in advice_of(one)


class Frequencies(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.made: dict[int, torch.Tensor] = {}

    def of(self, step: int) -> torch.Tensor:
        if step not in self.made:
            self.made[step] = torch.arange(4) * step  # added
        return self.made[step]

    def forward(self, x: torch.Tensor, step: int) -> torch.Tensor:
        return x + self.of(step)


def test_a_dict_that_a_called_method_asks_and_fills(tmp_path: Path) -> None:
    told = "\n".join(map(advice_of, found(tmp_path, Frequencies(), *((torch.ones(4), step) for step in (3, 4, 5)))))
    lines = Path(__file__).read_text().splitlines()
    added = next(number for number, line in enumerate(lines, 1) if line.endswith("# added"))
    assert f"The compiled code itself adds the key `step` to `self.made` (test_recompile_groups.py:{added})" in told
    assert "`step` is a key of the dict `self.made`" in told


def test_a_value_that_a_list_is_asked_for_is_no_key(tmp_path: Path) -> None:
    skipped = [3, 5]
    items = found(tmp_path, lambda x, n: x + 1 if n in skipped else x * 2, *((torch.ones(4), n) for n in (2, 3, 4)))
    assert not any("key of the dict" in advice_of(item) for item in items)


def test_a_number_that_an_operator_needs_is_told_once(tmp_path: Path) -> None:
    """The guard on its value fails first. Once it is a symbol, a guard on an expression of it fails."""
    calls = ((torch.ones(4), c) for c in (0.2, 0.15, 0.1, 0.05))
    items = found(tmp_path, lambda x, c: x.clamp(1 - c, 1 + c), *calls, backend="aot_eager")
    assert [(item.title.partition(": ")[2], len(item.records)) for item in items] == [("c changed", 3)]
