from __future__ import annotations

import pytest
import torch

from dynadiag.trial.fp64_oracle import ResultDifference, compare_runs
from dynadiag.trial.reference_run import ReplayableCall, run_call
from tests.watching import autocast_watcher


def _judged(function: object, wrong: object, *args: torch.Tensor) -> list[ResultDifference]:
    call = ReplayableCall(function, args, {})  # type: ignore[arg-type]  # any callable
    expected, actual = (run_call(call, one, call.copies()) for one in (function, wrong))  # type: ignore[arg-type]
    return compare_runs(call, expected, actual, None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_inputs_of_one_storage_share_it_in_float64_too(dtype: torch.dtype) -> None:
    """A write to one input shows in the other. Otherwise float64 would call the right result wrong."""

    def function(base: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        base.add_(100)
        return rows[0].clone()

    def wrong(base: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return function(base, rows) - 10

    base = torch.arange(24).reshape(4, 6).to(dtype)
    found = _judged(function, wrong, base, base[1:])
    assert [difference.rounding for difference in found] == [False]


def test_a_difference_within_the_input_precision_is_rounding() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x * 1e6)

    def otherwise(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x * 1e3 * 1e3)

    found = _judged(function, otherwise, torch.linspace(0.1, 1.0, 64))
    assert found
    assert all(difference.rounding for difference in found)


def test_float64_is_no_referee_where_a_mode_of_torch_changes_what_eager_gives() -> None:
    """The gradient of a complex pseudo-inverse is wrong in compiled code and under a mode (PyTorch issue 197084)."""

    def loss(a: torch.Tensor) -> torch.Tensor:
        return torch.linalg.pinv(a).abs().square().sum()

    a = torch.randn(4, 3, dtype=torch.complex64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    found = _judged(loss, torch.compile(loss, backend="aot_eager"), a)
    assert [(each.rounding, "no referee" in each.text) for each in found] == [(False, True)]


def _above_one(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x.softmax(-1).sum(-1, keepdim=True) > 1, x + 1, x - 1)


def test_a_threshold_that_rounding_decides_is_rounding() -> None:
    def otherwise(x: torch.Tensor) -> torch.Tensor:
        e = torch.exp(x - x.amax(-1, keepdim=True))
        return torch.where((e / e.sum(-1, keepdim=True)).flip(-1).sum(-1, keepdim=True) > 1, x + 1, x - 1)

    found = _judged(_above_one, otherwise, torch.randn(64, 64, generator=torch.Generator().manual_seed(0)))
    assert found
    assert all(difference.rounding for difference in found)


def test_a_wrong_value_next_to_a_rounded_threshold_is_wrong() -> None:
    def wrong(x: torch.Tensor) -> torch.Tensor:
        out = torch.where(x.softmax(-1).flip(-1).sum(-1, keepdim=True) > 1, x + 1, x - 1)
        return out + 30 * (x == x.amax())

    found = _judged(_above_one, wrong, torch.randn(64, 64, generator=torch.Generator().manual_seed(0)))
    assert [difference.rounding for difference in found] == [False]
    assert "1 of them wrong" in found[0].text


def test_an_omitted_cast_is_rounding_forward_and_backward() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * x.half().float()).cumsum(0)

    def otherwise(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * x).cumsum(0)

    found = _judged(function, otherwise, torch.linspace(0.1, 3.0, 2000).requires_grad_())
    assert {difference.text.partition(" differs")[0] for difference in found} == {"output 0", "gradient of input 'x'"}
    assert all(difference.rounding for difference in found)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_a_difference_in_an_exact_result_is_wrong(dtype: torch.dtype) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.floor(x * 2)

    def wrong(x: torch.Tensor) -> torch.Tensor:
        return torch.ceil(x * 2) - 1

    found = _judged(function, wrong, torch.arange(32, dtype=dtype))
    assert [difference.rounding for difference in found] == [False]
    assert "32 of them wrong" in found[0].text


def test_a_finite_value_is_wrong_where_float64_is_infinite() -> None:
    found = _judged(torch.log, lambda x: torch.log(x.clamp(min=1e-30)), torch.tensor([0.0, 1.0]))
    assert [difference.rounding for difference in found] == [False]
    assert "by up to inf" in found[0].text


def test_a_wrong_value_beside_random_numbers_and_a_cast_is_wrong() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.rand(64) * x.half().float()

    rounded = _judged(function, lambda x: torch.rand(64) * x, torch.linspace(0.1, 1, 64))
    wrong = _judged(function, lambda x: torch.rand(64) * x + 0.01, torch.linspace(0.1, 1, 64))
    assert [d.rounding for d in (*rounded, *wrong)] == [True, False]


def test_a_weight_that_autocast_casts_has_a_gradient_in_each_sample_of_rounding() -> None:
    """Autocast keeps what it has cast. A later run that gets it has no gradient of the weight itself."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 8))

    def loss(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(net(x), torch.arange(16) % 8)

    compiled = torch.compile(loss, backend="aot_eager_decomp_partition")
    with torch.autocast("cpu", torch.bfloat16):
        found = _judged(loss, compiled, torch.randn(16, 32))
    assert any("gradient of net[0].weight" in difference.text for difference in found)
    assert all(difference.rounding for difference in found)


def test_gradients_are_taken_outside_autocast() -> None:
    """torch recommends it. A backward pass that a compiler traced under autocast has other results."""
    watched, seen = autocast_watcher()
    call = ReplayableCall(watched, (torch.ones(2, requires_grad=True),), {})
    with torch.autocast("cpu", dtype=torch.bfloat16):
        run_call(call, call.function, call.copies())
        assert torch.is_autocast_enabled("cpu")
    assert seen == [(True, False)]


def test_of_integers_made_of_integers_float64_is_no_referee() -> None:
    x = torch.arange(6, dtype=torch.uint8)
    (difference,) = _judged(lambda x: (x * 3, x.float()), lambda x: (x * 3 + 1, x.float()), x)
    assert (difference.rounding, difference.kind) == (False, "wrong_result")
    assert "no referee" in difference.text
    assert "a float64 run" not in difference.text


def test_of_integers_made_of_floating_numbers_float64_is_the_referee() -> None:
    (difference,) = _judged(lambda x: x.argmax(), lambda x: x.argmin(), torch.tensor([1.0, 2.0, 0.5]))
    assert "a float64 run finds 1 of them wrong" in difference.text


def test_a_wrong_value_is_told_before_shared_memory_and_strides() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    x = torch.zeros(2, 3)
    for otherwise in (lambda x: x, lambda x: x.t().contiguous().t()):
        (found,) = _judged(function, otherwise, x)
        assert found.text.startswith("output 0 differs in 6 of 6 elements")
    (shared,) = _judged(lambda x: x.clone(), lambda x: x, x)
    assert shared.text == "output 0 and input 'x' share memory; uncompiled they do not"
    (apart,) = _judged(lambda x: x, lambda x: x.clone(), x)
    assert apart.text == "output 0 and input 'x' do not share memory; uncompiled they do"
    (another,) = _judged(lambda x: (x + 1, x + 1), lambda x: [x + 1] * 2, x)
    assert another.text == "output 1 and output 0 share memory; uncompiled they do not"
    (strides,) = _judged(lambda x: x.clone(), lambda x: x.t().contiguous().t(), x)
    assert strides.text == "output 0: strides (1, 2) instead of (3, 1)"


def test_an_output_that_shares_the_memory_of_a_buffer_is_wrong() -> None:
    module = torch.nn.BatchNorm1d(2)

    def kept(x: torch.Tensor) -> torch.Tensor:
        return module.running_mean + x.sum() * 0

    def shared(x: torch.Tensor) -> torch.Tensor:
        return module.running_mean

    x = torch.zeros(3)
    assert [found.text for found in _judged(kept, shared, x)] == [
        "output 0 and module.running_mean share memory; uncompiled they do not"
    ]
    assert not _judged(kept, kept, x)
    assert not _judged(shared, lambda x: module.running_mean.view(2, 1).view(2), x)
    part = module.running_mean[:1]  # an argument that shares memory with the state is copied
    assert not _judged(lambda x: x[:1], lambda x: x.view(1), part)
