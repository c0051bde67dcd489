"""The watches of a trial, both in this process: what a changed program's call is compared with."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dynadiag.fixes.call_watch import CandidateWatch, ReferenceWatch
from dynadiag.fixes.observation import CallDiffers, Observation
from dynadiag.fixes.variants import OWN
from dynadiag.trial.context import TRIAL


class Scaled(torch.nn.Module):
    def __init__(self, drift: float) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor([2.0, 3.0]) + drift)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


@pytest.fixture
def differences(monkeypatch: pytest.MonkeyPatch) -> list[CallDiffers]:
    """What both watches report."""
    found: list[CallDiffers] = []
    monkeypatch.setattr(TRIAL, "send", lambda event: found.append(event) if isinstance(event, CallDiffers) else None)
    return found


@pytest.mark.parametrize("inputs", ["nan", "inf", "-inf", "state nan", "argument 3 nan"])
def test_a_change_for_finite_numbers_is_compared_with_the_others_without_it(inputs: str) -> None:
    compared = {what: Observation(inputs=what).compares(inputs) for what in ("all", "finite", "not finite")}
    assert compared == {"all": True, "finite": False, "not finite": True}
    assert Observation(inputs="finite").compares("the program's inputs")
    assert not Observation(inputs="not finite").compares("state zeros")


def test_a_call_starts_from_the_values_of_the_unchanged_program(tmp_path: Path, differences: list[Any]) -> None:
    asked = Observation(records=str(tmp_path / "records"), uncompiled=True)
    reference, unchanged, changed = ReferenceWatch(asked), Scaled(0.0), Scaled(1e-3)
    reference(unchanged.forward, unchanged.forward, (torch.ones(2),), {})
    reference.finish()
    watch = CandidateWatch(asked)
    result = watch(changed.forward, changed.forward, (torch.full((2,), 1.001),), {})
    assert differences == []
    assert torch.equal(result, changed.scale * 1.001)  # the program goes on with its own values


class Total(torch.nn.Module):
    def __init__(self, step: float) -> None:
        super().__init__()
        self.step = step
        self.register_buffer("total", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total += x.detach() * self.step
        return self.total


def test_what_is_left_of_such_a_change_is_compared_uncompiled(tmp_path: Path, differences: list[Any]) -> None:
    asked = Observation(records=str(tmp_path / "records"), uncompiled=True)
    reference, unchanged, changed = ReferenceWatch(asked), Total(1.0), Total(1.5)
    reference(unchanged.forward, unchanged.forward, (torch.ones(2),), {})
    reference.finish()

    def compiled(_x: torch.Tensor) -> torch.Tensor:
        raise AssertionError("torch fails on what is left")

    asked = replace(asked, inputs="not finite")
    CandidateWatch(asked)(compiled, unchanged.forward, (torch.ones(2),), {})
    assert differences == []
    CandidateWatch(asked)(compiled, changed.forward, (torch.ones(2),), {})
    assert {each.inputs for each in differences} <= {"nan", "inf", "-inf", "state nan", "the program's inputs"}
    assert "nan" in {each.inputs for each in differences}


@pytest.mark.parametrize(("step", "found"), [(1.0, set()), (1.5, {"results", "mutations"})])
def test_a_result_that_is_state_is_compared_as_it_was_returned(
    tmp_path: Path, differences: list[Any], step: float, found: set[str]
) -> None:
    asked = Observation(records=str(tmp_path / "records"), uncompiled=True)
    reference, unchanged, changed = ReferenceWatch(asked), Total(1.0), Total(step)
    for _ in range(2):
        reference(unchanged.forward, unchanged.forward, (torch.ones(2),), {})
    reference.finish()
    watch = CandidateWatch(asked)
    watch(changed.forward, changed.forward, (torch.ones(2),), {})
    watch(changed.forward, changed.forward, (torch.ones(2),), {})
    assert {each.what for each in differences} == found


class Twofold(torch.nn.Module):
    """Returns and keeps its argument times a number each. It raises where that is zero."""

    numbers: tuple[float, float]

    def __init__(self) -> None:
        super().__init__()
        self.total = torch.zeros(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        returned, kept = self.numbers
        if not returned:
            raise TypeError
        if not kept:
            raise KeyError
        self.total += x.detach() * kept
        return x * returned


UNCOMPILED, COMPILED = (3.0, 3.0), (2.0, 2.0)


@pytest.mark.parametrize(
    ("uncompiled", "compiled", "changed", "is_right"),
    [
        (UNCOMPILED, COMPILED, UNCOMPILED, True),
        (UNCOMPILED, COMPILED, COMPILED, True),
        (UNCOMPILED, COMPILED, (2.0 * (1 + 1e-10), 2.0), True),
        (UNCOMPILED, UNCOMPILED, COMPILED, False),
        (UNCOMPILED, COMPILED, (4.0, 4.0), False),  # as far from what is right, on the other side
        (UNCOMPILED, COMPILED, (2.5, 2.5), False),  # nearer, and still nothing that was there before
        (UNCOMPILED, COMPILED, (2.0 * (1 + 1e-4), 2.0), False),
        (UNCOMPILED, COMPILED, (2.0, 3.0), False),  # a part of each
        (UNCOMPILED, COMPILED, (3.0, 2.0), False),
        (UNCOMPILED, (0.0, 1.0), (0.0, 1.0), True),
        (UNCOMPILED, (0.0, 1.0), (1.0, 0.0), False),  # it raises something else
        (UNCOMPILED, (0.0, 1.0), COMPILED, False),
        (UNCOMPILED, COMPILED, (0.0, 1.0), False),
        ((0.0, 1.0), COMPILED, COMPILED, True),
        ((0.0, 1.0), COMPILED, (4.0, 4.0), False),
    ],
)
def test_a_change_does_all_as_the_unchanged_program_uncompiled_or_all_as_compiled(
    tmp_path: Path,
    differences: list[CallDiffers],
    uncompiled: tuple[float, float],
    compiled: tuple[float, float],
    changed: tuple[float, float],
    is_right: bool,
) -> None:
    records, made = str(tmp_path / "records"), str(tmp_path / "made")
    watches = (
        (lambda: ReferenceWatch(Observation(records=records, uncompiled=True)), uncompiled),
        (lambda: CandidateWatch(Observation(records=records, own_records=made)), compiled),
        (lambda: CandidateWatch(Observation(records=records, compiled_records=made)), changed),
    )
    for make, numbers in watches:
        differences.clear()
        watch, module = make(), type("Twofold", (Twofold,), {"numbers": numbers})()
        with suppress(TypeError, KeyError):
            watch(module.forward, module.forward, (torch.ones(2),), {})
        watch.finish()
    assert (not [each for each in differences if not each.rounding]) == is_right


class Cancelling(torch.nn.Module):
    """Returns what is left of two numbers that almost cancel out, or a constant for a number that is exactly one."""

    factor: float
    steps: bool

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left = x[0] - x[1]
        return (torch.where(x[0] == 1, 1.0, 2.0) if self.steps else left) * self.factor


@pytest.mark.parametrize(
    ("factor", "steps", "is_right"),
    [
        (1 + 4e-6, False, True),  # the last bits of the inputs move the result by 6e-6 of it
        (1 + 1e-4, False, False),
        (1 + 4e-6, True, False),  # the last bits choose another number: that tells nothing of rounding
        (1.5, True, False),
    ],
)
def test_a_result_may_differ_as_far_as_the_last_bits_of_the_inputs_move_it(
    tmp_path: Path, differences: list[CallDiffers], factor: float, steps: bool, is_right: bool
) -> None:
    records, made = str(tmp_path / "records"), str(tmp_path / "made")
    watches = (
        (lambda: ReferenceWatch(Observation(records=records, uncompiled=True)), 1.0),
        (lambda: CandidateWatch(Observation(records=records, own_records=made)), 1.0),
        (lambda: CandidateWatch(Observation(records=records, compiled_records=made)), factor),
    )
    for make, number in watches:
        differences.clear()
        watch, module = make(), type("Cancelling", (Cancelling,), {"factor": number, "steps": steps})()
        watch(module.forward, module.forward, (torch.tensor([1.0, 0.96]),), {})
        watch.finish()
    own = [each for each in differences if each.inputs == OWN]
    assert (not [each for each in own if not each.rounding]) == is_right


class Steep(torch.nn.Module):
    """Returns a number that holds still, and has a gradient that the last bits of the argument decide."""

    factor: float

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1.0, 0.5]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        waves = torch.sin(self.weight * 1e4) * 1e-9 * self.factor
        return x * 3 + waves


def test_a_gradient_that_is_lost_in_rounding_is_not_compared(tmp_path: Path, differences: list[CallDiffers]) -> None:
    records, made = str(tmp_path / "records"), str(tmp_path / "made")
    watches = (
        (lambda: ReferenceWatch(Observation(records=records, uncompiled=True)), 1.0),
        (lambda: CandidateWatch(Observation(records=records, own_records=made)), 1.0),
        (lambda: CandidateWatch(Observation(records=records, compiled_records=made)), 1.5),
    )
    for make, number in watches:
        differences.clear()
        watch, module = make(), type("Steep", (Steep,), {"factor": number})()
        watch(module.forward, module.forward, (torch.tensor([1.0, 2.0]),), {})
        watch.finish()
    found = {each.inputs for each in differences if not each.rounding and each.what == "gradients"}
    assert OWN in found
    assert "state large" not in found


class Counting(Twofold):
    """Computes otherwise when it is compiled, and the change forgets to count."""

    calls = 0
    counts = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += self.counts
        return super().forward(x)


def test_what_a_change_does_as_the_compiled_program_does_is_not_told_of_it(
    tmp_path: Path, differences: list[CallDiffers]
) -> None:
    records, made = str(tmp_path / "records"), str(tmp_path / "made")
    watches = (
        (lambda: ReferenceWatch(Observation(records=records, uncompiled=True)), UNCOMPILED, True),
        (lambda: CandidateWatch(Observation(records=records, own_records=made)), COMPILED, True),
        (lambda: CandidateWatch(Observation(records=records, compiled_records=made)), COMPILED, False),
    )
    for make, numbers, counts in watches:
        differences.clear()
        watch, module = make(), type("Counting", (Counting,), {"numbers": numbers, "counts": counts})()
        watch(module.forward, module.forward, (torch.ones(2),), {})
        watch.finish()
    assert {each.text for each in differences} == {"self.calls is 0 instead of 1"}


def _set_up(context: Any) -> None:
    context.get_local("self")._i_will_not_complain_if_bc_breaks_VariableTracker().realize().value.factor = 2


class SetUp(torch.nn.Module):
    """Is set up while torch compiles, for which it compiles again where it is not: another graph than those before."""

    factor = 3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.comptime.comptime(_set_up)
        return x * self.factor


def test_the_programs_own_call_is_compiled_whatever_other_inputs_took(
    tmp_path: Path, differences: list[CallDiffers]
) -> None:
    asked, module, x = Observation(records=str(tmp_path / "records"), uncompiled=True), SetUp(), torch.ones(3, 4)
    reference = ReferenceWatch(asked)
    reference(module.forward, module.forward, (x,), {})
    reference.finish()
    compiled = torch.compile(module, backend="eager")
    with torch._dynamo.config.patch(recompile_limit=1):
        result = CandidateWatch(asked)(compiled, module.forward, (x,), {})
    assert torch.equal(result, x * 2)
    assert differences


class Chance(torch.nn.Module):
    """Adds random numbers while it trains: of NumPy's uncompiled, and of torch's where it is compiled."""

    made: str
    wrong: float

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return x + self.wrong
        if self.made == "uncompiled":
            return x + float(np.random.rand())
        torch.rand(1 if self.made == "compiled" else 2)
        return x + torch.rand(2)


@pytest.mark.parametrize("wrong", [0.0, 1.0])
def test_random_numbers_that_compiled_code_draws_otherwise_tell_nothing(
    tmp_path: Path, differences: list[CallDiffers], wrong: float
) -> None:
    records, made = str(tmp_path / "records"), str(tmp_path / "made")
    watches = (
        (lambda: ReferenceWatch(Observation(records=records, uncompiled=True)), "uncompiled", 0.0),
        (lambda: CandidateWatch(Observation(records=records, own_records=made)), "compiled", 0.0),
        (lambda: CandidateWatch(Observation(records=records, compiled_records=made)), "changed", wrong),
    )
    for make, kind, added in watches:
        differences.clear()
        watch, module = make(), type("Chance", (Chance,), {"made": kind, "wrong": added})().eval()
        watch(module.forward, module.forward, (torch.ones(2),), {})
        watch.finish()
    assert bool(differences) == bool(wrong)
    assert {each.inputs for each in differences} & {OWN} == ({OWN} if wrong else set())
