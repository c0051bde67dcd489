"""Every guard that failed is named with what was and what is now, also where torch has no guard object for it."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.eval_frame import _debug_get_cache_entry_list

from dynadiag.capture.guards import failing_guards


class Named(torch.Tensor):
    pass


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def total(d: dict[str, torch.Tensor]) -> Any:
    return sum(d.values())


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    torch.set_default_dtype(torch.float32)


def failed(function: Callable[..., Any], first: dict[str, Any], then: dict[str, Any]) -> list[tuple[Any, ...]]:
    torch.compile(function, backend="eager")(**first)
    (entry,) = _debug_get_cache_entry_list(function.__code__)
    return [(each["source"], each["was"], each["now"]) for each in failing_guards(entry, then)]


def test_a_subclass_is_told_by_its_type() -> None:
    then = torch.ones(3).as_subclass(Named)
    assert failed(double, {"x": torch.ones(3)}, {"x": then}) == [("L['x'].__class__", "Tensor", "Named")]


def test_a_sparse_tensor_by_what_it_dispatches_to() -> None:
    (found,) = failed(double, {"x": torch.ones(3)}, {"x": torch.ones(3).to_sparse()})
    assert "SparseCPU" in found[2]


def test_a_dict_with_one_more_item_by_its_length() -> None:
    one = torch.ones(3)
    assert failed(total, {"d": {"a": one}}, {"d": {"a": one, "b": one}}) == [("L['d']", "length 1", "length 2")]


def test_the_default_dtype_by_its_name() -> None:
    torch.compile(double, backend="eager")(torch.ones(3))
    (entry,) = _debug_get_cache_entry_list(double.__code__)
    x = torch.ones(3)
    torch.set_default_dtype(torch.float64)
    found = [(each["source"], each["was"], each["now"]) for each in failing_guards(entry, {"x": x})]
    assert found == [("default_dtype", "torch.float32", "torch.float64")]


def optional(x: torch.Tensor, y: torch.Tensor | None) -> torch.Tensor:
    return x * 2 if y is None else x + y


def test_what_was_none_is_told_by_what_it_is_now() -> None:
    one = torch.ones(3)
    (found,) = failed(optional, {"x": one, "y": None}, {"x": one, "y": torch.ones(3)})
    assert found == ("L['y']", "None", "Tensor(3,)")


def some(x: torch.Tensor, xs: list[int]) -> torch.Tensor:
    return x + 1 if xs else x * 2


def test_an_empty_list_by_its_length() -> None:
    one = torch.ones(3)
    (found,) = failed(some, {"x": one, "xs": []}, {"x": one, "xs": [1, 2]})
    assert found == ("L['xs']", "length 0", "length 2")


def mapped(d: dict[str, torch.Tensor], x: torch.Tensor) -> dict[str, torch.Tensor]:
    return {name: value + x for name, value in d.items()}


def test_another_type_of_dict_by_both_types() -> None:
    one = torch.ones(3)
    found = failed(mapped, {"d": {"a": one}, "x": one}, {"d": OrderedDict(a=one), "x": one})
    assert ("L['d']", "<class 'dict'>", "<class 'collections.OrderedDict'>") in found


class Step:
    def __init__(self, count: int) -> None:
        self.count = count

    def __call__(self, module: torch.nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        return output * self.count


def hooked(count: int) -> torch.nn.Module:
    module = torch.nn.Sequential(torch.nn.ReLU())
    module[0].register_forward_hook(Step(count))
    return module


def through(module: torch.nn.Module, x: torch.Tensor) -> Any:
    return module(x)


def test_a_hook_is_looked_up_by_its_place_as_its_number_is_another_in_each_module() -> None:
    one = torch.ones(3)
    assert failed(through, {"module": hooked(2), "x": one}, {"module": hooked(2), "x": one}) == []


def test_what_a_hook_reads_is_told_and_as_kept_in_a_module() -> None:
    x = torch.ones(3)
    torch.compile(through, backend="eager")(hooked(2), x)
    (entry,) = _debug_get_cache_entry_list(through.__code__)
    (found,) = failing_guards(entry, {"module": hooked(3), "x": x})
    assert found["source"].endswith(".count")
    assert (found["was"], found["now"]) == ("2", "3")
    assert found["base"] == "held attribute"


class Block(torch.nn.Module):
    def __init__(self, act: torch.nn.Module | None) -> None:
        super().__init__()
        self.act = act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if self.act is None else self.act(x)


def within(block: Block, x: torch.Tensor) -> Any:
    return block(x)


@pytest.mark.parametrize("first", [torch.nn.ReLU(), None])
def test_a_module_that_is_none_in_another_instance_is_told_as_none(first: torch.nn.Module | None) -> None:
    """torch keeps a module in a dict of its own, so that its place is empty there where the attribute is None."""
    x = torch.ones(3)
    torch.compile(within, backend="eager")(Block(first), x)
    (entry,) = _debug_get_cache_entry_list(within.__code__)
    then = Block(torch.nn.ReLU() if first is None else None)
    told = [(each["part"], each["was"], each["now"]) for each in failing_guards(entry, {"block": then, "x": x})]
    none, module = "None", str(torch.nn.ReLU)
    assert [each for each in told if none in each[1:]] != []
    assert all(part != "presence" for part, *_ in told)
    assert module in (told[0][1], told[0][2]) or first is None


def of_type(x: torch.Tensor, key: tuple[int, str] | int) -> torch.Tensor:
    return x * key[0] if isinstance(key, tuple) else x * key


def test_a_guard_that_raises_for_another_type_fails() -> None:
    one = torch.ones(3)
    assert failed(of_type, {"x": one, "key": (2, "conv")}, {"x": one, "key": 2})[0][0] == "L['key']"


def test_an_item_of_a_counter_by_its_key() -> None:
    def scaled(d: Counter[str], x: torch.Tensor) -> torch.Tensor:
        return x * d["b"]

    x = torch.ones(3)
    found = failed(scaled, {"d": Counter(a=1, b=2), "x": x}, {"d": Counter(a=1, b=3), "x": x})
    assert found == [("L['d']['b']", "2", "3")]
