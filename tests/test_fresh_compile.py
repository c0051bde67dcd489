"""`dynadiag.values` in Python: it compiles anew each time, and what the program has compiled stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import dynadiag


def logarithm(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(torch.log(x)).sum()


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x.log()


def is_compiled_again(call: Callable[..., Any], *given: Any) -> bool:
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    call(*given)
    return bool(torch._dynamo.utils.counters["stats"]["unique_graphs"] != before)


def test_each_call_has_values_and_the_program_keeps_its_compiled_code() -> None:
    good, bad = torch.ones(4), -torch.ones(4)
    program = torch.compile(logarithm)
    program(good)
    firsts = [dynadiag.values(logarithm, x).first_nan for x in (good, bad, good)]
    assert [first and first.node for first in firsts] == [None, "log", None]
    assert not is_compiled_again(program, good)


def test_a_module_that_was_compiled_has_values_too_and_keeps_what_the_call_sets() -> None:
    module = Counting()
    torch.compile(module)(torch.ones(4))
    for calls in (2, 3):
        assert "log" in [node.node for node in dynadiag.values(module, torch.ones(4))]
        assert module.calls == calls


def test_a_node_has_the_name_that_is_shown_and_no_advice_is_for_a_shell() -> None:
    values = dynadiag.values(lambda x: x.exp(), torch.ones(4))
    assert values.node("x") is values.node("l_x_")
    assert 'calls="0..9" takes those too' in " ".join(repr(values).split())
    assert "--" not in repr(values)


def test_code_that_was_compiled_without_values_is_refused() -> None:
    program = torch.compile(lambda x: x.log())
    program(torch.ones(4))
    with pytest.raises(dynadiag.DynadiagError, match="its compiled code was made without values"):
        dynadiag.values(program, torch.ones(4))
