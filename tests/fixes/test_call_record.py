"""Records of calls: what counts as a difference, and what as rounding."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dynadiag.fixes.call_record import CallRecord, StateAfter, compare, mark_unstable, random_state, record_of
from dynadiag.fixes.user_globals import UserGlobals
from dynadiag.fixes.variants import OWN, search_names, variant, variant_names
from dynadiag.trial.reference_run import ReplayableCall, run_call


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(2.0))
        self.register_buffer("total", torch.zeros(()))
        self.calls = 0

    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        self.calls += 1
        self.total.add_(x.detach().sum())
        return x * self.scale * n


def recorded(module: torch.nn.Module, x: torch.Tensor, n: int = 3, name: str = OWN) -> CallRecord:
    torch.manual_seed(0)
    call = ReplayableCall(module.forward, (x, n), {})
    function, arguments = variant(name, call, call.copies(), module.forward)
    after = StateAfter()

    def observed(*args: object, **kwargs: object) -> object:
        nonlocal after
        result = function(*args, **kwargs)
        after = StateAfter.of(call, UserGlobals((), call), result)
        return result

    return record_of(call, 0, name, run_call(call, observed, arguments), after)


def what(expected: CallRecord, actual: CallRecord) -> list[str]:
    return sorted({found.what for found in compare(expected, actual) if not found.rounding})


X = torch.linspace(-1, 1, 6).reshape(2, 3)


def test_two_runs_of_one_call_are_the_same() -> None:
    assert what(recorded(Counter(), X), recorded(Counter(), X)) == []


def test_what_lightning_keeps_of_a_call_of_torch_compile_is_no_change() -> None:
    compiled = Counter()
    compiled._compile_kwargs = {"backend": "eager"}  # by its own `torch.compile`
    assert what(recorded(Counter(), X), recorded(compiled, X)) == []


def test_a_number_that_became_a_buffer_keeps_its_value_in_other_state() -> None:
    module = Counter()
    call = ReplayableCall(module.forward, (X, 3), {})
    module.total.fill_(7.0)
    seen: list[float] = []
    function, _ = variant("state zeros", call, call.copies(), lambda: seen.append(float(module.total)), ("total",))
    function()
    assert seen == [7.0]
    assert module.scale.item() == 0.0


class NoGradient(Counter):
    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        return super().forward(x, n).detach() + 0 * self.scale


class OtherState(Counter):
    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        self.total.mul_(0.5)
        self.total.add_(1)
        return super().forward(x, n)


class NoCount(Counter):
    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        result = super().forward(x, n)
        self.calls -= 1
        return result


class OtherStrides(Counter):
    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        return super().forward(x, n).t().contiguous().t()


class OtherType(Counter):
    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        return super().forward(x, n).double()


class InPlace(Counter):
    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        result = super().forward(x, n)
        x.data.add_(1)
        return result


class Noisy(Counter):
    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        torch.rand(1)
        return super().forward(x, n)


DIFFERENT = {
    NoGradient: ["gradients"],
    OtherState: ["mutations"],
    NoCount: ["mutations"],
    OtherStrides: ["results"],
    OtherType: ["results"],
    InPlace: ["gradients", "mutations"],
    Noisy: ["random"],
}


@pytest.mark.parametrize("changed", DIFFERENT, ids=lambda changed: changed.__name__)
def test_each_kind_of_difference_is_seen(changed: type[Counter]) -> None:
    assert what(recorded(Counter(), X), recorded(changed(), X)) == DIFFERENT[changed]


def test_state_that_is_not_found_any_more_is_a_difference() -> None:
    record = recorded(Counter(), X)
    assert "self.total" in record.state
    assert what(record, replace(record, state={})) == ["mutations"]
    assert what(record, replace(record, arguments={})) == ["mutations"]
    assert what(replace(record, state={}), record) == []


def test_rounding_is_told_and_is_no_difference() -> None:
    expected, actual = recorded(Counter(), X), recorded(Counter(), X)
    actual.outputs = [value.detach() * (1 + 1e-7) for value in actual.outputs]
    actual.outputs[0].requires_grad_()
    (found,) = compare(expected, actual)
    assert (found.what, found.rounding) == ("results", True)


def test_a_candidate_has_to_raise_where_the_program_does() -> None:
    fine = recorded(Counter(), X)
    raises = CallRecord(0, OWN, error="RuntimeError")
    assert what(raises, fine) == ["error"] == what(fine, raises)
    assert what(raises, CallRecord(0, OWN, error="TorchRuntimeError")) == []


def test_an_error_that_the_program_raises_itself_keeps_its_type_and_what_is_printed_before() -> None:
    raises = CallRecord(0, "zeros", "ValueError", deliberate=True, printed="rows 5\n")
    assert what(raises, CallRecord(0, "zeros", "ValueError", printed="rows 5\n")) == []
    assert what(raises, CallRecord(0, "zeros", "RuntimeError", printed="rows 5\n")) == ["error"]
    assert what(raises, CallRecord(0, "zeros", "ValueError")) == ["printed"]


def test_what_a_call_changes_and_draws_before_its_own_error_is_compared() -> None:
    def of(before: Callable[[torch.Tensor], object]) -> CallRecord:
        def refuses(x: torch.Tensor) -> None:
            before(x)
            raise ValueError("no")

        call, after = ReplayableCall(refuses, (X.detach(),), {}), StateAfter()

        def observed(x: torch.Tensor) -> None:
            nonlocal after
            try:
                refuses(x)
            finally:
                after = StateAfter(random=random_state())

        with torch.random.fork_rng():
            ran = run_call(call, observed, call.copies())
        return record_of(call, 0, OWN, ran, after, roots=(str(Path(__file__).parent),))

    assert what(of(torch.sin), of(torch.cos)) == []
    assert what(of(torch.sin), of(torch.Tensor.exp_)) == ["mutations"]
    assert what(of(torch.sin), of(torch.rand_like)) == ["random"]


def test_only_a_line_that_raises_is_the_programs_own_error() -> None:
    def refuses(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 2:
            raise ValueError("no")
        return x.reshape(7)

    def of(x: torch.Tensor) -> CallRecord:
        call = ReplayableCall(refuses, (x,), {})
        root = str(Path(__file__).parent)
        return record_of(call, 0, OWN, run_call(call, refuses, call.copies()), StateAfter(), roots=(root,))

    assert (of(X).error, of(X).deliberate) == ("ValueError", True)
    assert (of(X.T).error, of(X.T).deliberate) == ("RuntimeError", False)


def test_an_arithmetic_error_counts_where_the_program_itself_meets_it() -> None:
    fine = recorded(Counter(), X)
    assert what(CallRecord(0, "zeros", "ZeroDivisionError"), fine) == []
    assert what(CallRecord(0, OWN, "ZeroDivisionError"), fine) == ["error"]


class Same(torch.nn.Module):
    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        return x


class Copied(torch.nn.Module):
    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        return x.clone()


def test_a_result_that_is_the_only_argument_is_no_copy_of_it() -> None:
    assert what(recorded(Same(), X), recorded(Copied(), X)) == ["results"]


SECONDS = itertools.count(0.0, 1.5)  # a clock; two readings of a real one may be too close to differ


class Timed(Counter):
    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        self.seconds = next(SECONDS)
        return super().forward(x, n)


def test_what_differs_from_run_to_run_is_not_compared_but_its_type_is() -> None:
    first, again = recorded(Timed(), X), recorded(Timed(), X)
    assert what(first, again) == ["mutations"]
    mark_unstable([first], again)
    assert what(first, again) == []
    again.scalars["self.seconds"] = "late"
    assert what(first, again) == ["mutations"]


class Window(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen, self.last = {0}, collections.deque([0], maxlen=2)

    def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
        self.seen.add(n)
        self.last.append(n)
        return x


def test_sets_and_deques_are_compared_and_restored() -> None:
    module = Window()
    record = recorded(module, X, 5)
    assert {record.scalars["self.last[1]"], record.scalars["self.seen[5]"]} == {5}
    assert (module.seen, list(module.last)) == ({0}, [0])


def test_masks_and_small_integers_take_their_extremes() -> None:
    codes, mask = torch.tensor([1, 2], dtype=torch.uint8), torch.tensor([True, False])
    call = ReplayableCall(Counter().forward, (codes, mask, True), {})
    assert {"extreme integers", "empty masks", "full masks", "argument 2 inverted"} <= set(variant_names(call))

    def made(name: str) -> list[object]:
        _, (args, _kwargs) = variant(name, call, call.copies(), call.function)
        return [each.tolist() if isinstance(each, torch.Tensor) else each for each in args]

    assert made("extreme integers") == [[255, 255], [True, False], True]
    assert made("empty masks")[1:] == [[False, False], True]
    assert made("full masks")[1:] == [[True, True], True]
    assert made("inverted masks")[1:] == [[False, True], True]
    assert made("argument 2 inverted")[2] is False


def test_a_tensor_that_a_change_makes_of_a_number_keeps_its_value() -> None:
    call = ReplayableCall(Counter().forward, (X, torch.tensor(0.5)), {})
    _, (args, _kwargs) = variant("zeros", call, call.copies(), call.function, tensors=[0])
    assert [float(value.sum()) for value in args] == [0.0, 0.5]


def test_other_inputs_are_the_same_in_every_process_and_leave_the_state_alone() -> None:
    module = Counter()
    names = variant_names(ReplayableCall(module.forward, (X, 3), {}))
    assert {
        "zeros",
        "nan",
        "equal",
        "requires grad",
        "size 2 to 3",
        "argument 1 0",
        "state zeros",
        "other mode",
    } <= set(names)
    for name in names:
        assert what(recorded(module, X, name=name), recorded(Counter(), X, name=name)) == [], name
    assert (module.calls, module.training, module.scale.item()) == (0, True, 2.0)


def test_a_side_that_was_not_taken_is_looked_for_with_much_larger_sizes() -> None:
    call = ReplayableCall(torch.nn.Identity(), (torch.ones(1, 8),), {})
    assert {"size 1 to 5", "size 8 to 40"} <= set(search_names(call))
    _, ((made,), _) = variant("size 8 to 40", call, call.copies(), call.function)
    assert made.shape == (1, 40)


def test_variants_change_what_they_name() -> None:
    call = ReplayableCall(Counter().forward, (X, 3), {})

    def made(name: str) -> tuple[torch.Tensor, int]:
        _, (args, _kwargs) = variant(name, call, call.copies(), call.function)
        return args

    assert made("size 2 to 3")[0].shape == (3, 3)
    assert made("nan")[0].isnan().sum() == 1
    assert made("argument 1 +1")[1] == 4
    assert made("requires grad")[0].requires_grad
    assert torch.equal(made("scaled 0.5")[0], X * 0.5)


def test_what_is_left_where_gradients_cancel_out_is_rounding() -> None:
    def record(small: float, large: float) -> CallRecord:
        return CallRecord(0, OWN, gradients={"a": torch.tensor([small]), "b": torch.tensor([large])})

    assert what(record(3e-9, 2.0), record(-1e-9, 2.0)) == []
    assert what(record(3e-9, 2e-8), record(-1e-9, 2e-8)) == ["gradients"]
    assert what(record(3e-9, float("inf")), record(-1e-9, float("inf"))) == ["gradients"]


def test_numbers_of_numpy_are_kept_as_text(tmp_path: Path) -> None:
    class Scalar(Counter):
        def forward(self, x: torch.Tensor, n: int) -> Any:
            return np.float64(2.5)

    record = recorded(Scalar(), X)
    torch.save(record.to_json(), tmp_path / "record")
    assert torch.load(tmp_path / "record", weights_only=True)["outputs"] == ["<float64 np.float64(2.5)>"]
    assert what(record, recorded(Scalar(), X)) == []


@pytest.mark.parametrize(("device", "is_made_smaller"), [("cpu", True), ("meta", False)])
def test_no_size_is_made_smaller_where_a_gpu_checks_indices(device: str, is_made_smaller: bool) -> None:
    def chosen(values: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        return values[:, places]

    places = torch.zeros(3, dtype=torch.int64, device=device)
    names = variant_names(ReplayableCall(chosen, (torch.ones(2, 5, device=device), places), {}))
    assert ("size 5 to 1" in names) is is_made_smaller
    assert "size 5 to 6" in names
