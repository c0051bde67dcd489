"""The time of compiles, by part, and what was compiled again."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dynadiag
from dynadiag.explanation.explanation import Explanation, explain
from dynadiag.explanation.timing import shares, timing
from dynadiag.recording.records import Seconds
from dynadiag.recording.torch_text.sources import source_text
from dynadiag.render.report import explanation_text
from tests.explanation.build import FakeRecording, a_compile, a_failure, a_recompile

_part = st.one_of(st.none(), st.floats(0, 1e6))


@given(st.builds(Seconds, _part, _part, _part, _part, _part))
def test_the_parts_add_up_to_the_total(seconds: Seconds) -> None:
    parts = shares(seconds)
    assert all(part.seconds > 0 for part in parts)
    assert math.isclose(sum(part.seconds for part in parts), seconds.total or 0.0, abs_tol=1e-6)


def test_nested_times_are_told_apart() -> None:
    parts = {part.part: round(part.seconds, 6) for part in shares(Seconds(10, 2, 7, 5, 4))}
    assert parts == {"dynamo": 2, "aot": 2, "inductor": 1, "codegen": 4, "other": 1}


def test_the_backend_of_a_compile_from_the_cache_is_not_put_on_autograd() -> None:
    warm = a_compile(cache="hit", seconds=Seconds(10, 2, 7, None, None))
    cold = a_compile(1, "1/0", cache="miss", seconds=Seconds(10, 2, 7, 5, None))
    found = timing([warm, cold])
    assert found is not None
    assert found.hits == 1
    by_id = {item.compile.compile_id: {part.part for part in item.shares} for item in found.spent}
    assert by_id == {"0/0": {"dynamo", "cached", "other"}, "1/0": {"dynamo", "aot", "inductor", "other"}}


def test_a_backend_that_is_not_known_to_have_autograd_is_only_a_backend() -> None:
    eager, lowered = (a_compile(n, f"{n}/0", seconds=Seconds(10, 2, 7, None, None)) for n in range(2))
    found = timing([eager, lowered], (), {"1/0"})
    assert found is not None
    by_id = {item.compile.compile_id: {part.part for part in item.shares} for item in found.spent}
    assert by_id == {"0/0": {"dynamo", "backend", "other"}, "1/0": {"dynamo", "aot", "other"}}


def test_first_compiles_and_recompiles_are_apart_and_the_slowest_stands_first() -> None:
    found = timing(
        [
            a_compile(0, "0/0", seconds=Seconds(3.0)),
            a_compile(1, "1/0", seconds=Seconds(1.0)),
            a_compile(2, "0/1", seconds=Seconds(4.0)),
            a_compile(3, "!2/0/0", seconds=Seconds(0.5)),
        ]
    )
    assert found is not None
    assert (found.total, found.first_compiles, found.recompiles) == (8.5, 4.5, 4.0)
    assert [(item.compile.compile_id, item.again) for item in found.spent] == [
        ("0/1", True),
        ("0/0", False),
        ("1/0", False),
        ("!2/0/0", False),
    ]


def test_a_recompile_is_put_down_to_what_its_finding_names() -> None:
    """Of two entries that failed, the one that came nearest to being used: both tables say the same."""
    size, dtype = a_failure("s", source="L['x'].size()[0]", was="3", now="4"), a_failure("d", source="L['x'].dtype")
    both = a_recompile(
        reasons=(replace(dtype, against="0/0"), replace(size, against="0/0"), replace(size, against="-"))
    )
    found = timing([a_compile(0, "0/0"), a_compile(1, "0/1")], [both])
    (finding,) = explain(FakeRecording(recompile_records=(both,))).findings
    assert found is not None
    assert {item.compile.compile_id: item.because for item in found.spent} == {"0/0": None, "0/1": "x.size()[0]"}
    assert finding.title.endswith(": x.size()[0] changed")


class Layer(torch.nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number, self.linear = number, torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


class NumberedLayer(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x)) + self.number


class Net(torch.nn.Module):
    def __init__(self, kind: type[Layer], number: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(map(kind, range(number)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize(("kind", "number", "alike"), [(Layer, 8, True), (Layer, 7, False), (NumberedLayer, 8, False)])
def test_layers_that_are_alike_share_their_code_when_compiled_apart(
    tmp_path: Path, kind: type[Layer], number: int, alike: bool
) -> None:
    def compiled(name: str, *, apart: bool) -> Explanation:
        torch._dynamo.reset()
        net = Net(kind, number)
        with dynadiag.record(tmp_path / name), torch.no_grad():
            for module in net.layers if apart else [net]:
                module.compile(backend="eager")
            net(torch.ones(2, 4))
        with dynadiag.open(tmp_path / name) as recording:
            return explain(recording)

    whole = compiled("whole.dynadiag", apart=False)
    (one,) = whole.compiles
    slow, quick = (timing([replace(one, seconds=Seconds(each))], guards=whole.guards) for each in (60.0, 1.0))
    assert slow is not None
    assert quick is not None
    told = [(each.compile_id, source_text(each.source), each.kind, each.number) for each in slow.alike]
    assert told == ([(one.compile_id, "self.layers", "Layer", 8)] if alike else [])
    assert quick.alike == ()
    assert (len(compiled("apart.dynadiag", apart=True).compiles) == 1) is (kind is Layer)
    shown = " ".join(explanation_text(replace(whole, timing=slow)).split())
    assert ("the 8 Layer in `self.layers` are alike; 0/0 compiled each" in shown) is alike


def test_after_a_reset_a_first_compile_is_one_again() -> None:
    found = timing([a_compile(i, compile_id) for i, compile_id in enumerate(("0/0", "0/0#2", "0/1#2", "-"))])
    assert found is not None
    assert [item.again for item in found.spent] == [False, False, True, False]


def test_an_object_that_is_gone_is_named_so() -> None:
    gone = a_failure("g", source="L['self']", was="alive", now="deallocated")
    found = timing([a_compile(0, "0/1")], [a_recompile(reasons=(gone,))])
    assert found is not None
    assert found.spent[0].because == "self was freed"


def test_without_times_there_is_no_timing() -> None:
    assert timing([]) is None
    assert timing([a_compile(seconds=Seconds())]) is None
