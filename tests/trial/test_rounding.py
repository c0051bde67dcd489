from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.trial.rounding import StochasticRounding, _overlaps_itself

TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def _sampled(function: Callable[..., torch.Tensor], *args: torch.Tensor, count: int = 8) -> torch.Tensor:
    """(count, ...) results of a function, each on copies of its arguments."""
    samples = []
    for seed in range(count):
        copies = [a.detach().clone().requires_grad_(a.requires_grad) for a in args]
        with StochasticRounding(seed):
            samples.append(function(*copies).detach())
    return torch.stack(samples)


@pytest.mark.parametrize("dtype", TYPES)
def test_an_inexact_result_moves_by_a_few_units(dtype: torch.dtype) -> None:
    x = torch.linspace(0.5, 1.0, 256, dtype=dtype)
    sampled = _sampled(torch.sin, x)
    assert sampled.dtype is dtype
    assert (sampled != sampled[0]).any()
    assert ((sampled - x.sin()).abs() <= 4 * torch.finfo(dtype).eps).all()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 2 - 1,
        lambda x: (x @ x.T).sum(),
        lambda x: x.add_(1),
        lambda x: x.view(-1)[1:].mul_(3),
        torch.relu,
        lambda x: x.cumsum(0),
        lambda x: x.sort().values,
    ],
)
def test_exact_results_do_not_move(dtype: torch.dtype, function: Callable[..., torch.Tensor]) -> None:
    x = torch.arange(-4.0, 4.0, dtype=dtype).reshape(2, 4)
    sampled = _sampled(function, x)
    assert (sampled == function(x.clone())).all()


def test_in_place_writes_round_and_show_through_views() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        view = x[1:]
        view.mul_(0.1)
        return x + 0 * view.sum()

    x = torch.ones(64, dtype=torch.bfloat16)
    sampled = _sampled(function, x)
    assert (sampled[:, 0] == 1).all()
    assert (sampled[:, 1:] != sampled[0, 1]).any()
    assert ((sampled[:, 1:] - 0.1).abs() < 0.001).all()


def test_a_write_to_memory_that_overlaps_itself_is_left_as_it_is() -> None:
    """An element that was written twice has no exact value to round."""

    def shifted(x: torch.Tensor) -> torch.Tensor:
        return x.clone().as_strided((2, 2), (1, 1), 0).add_(0.1)

    x = torch.rand(4)
    assert torch.equal(_sampled(shifted, x)[0], shifted(x))


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.ones(4, 4).t(), False),
        (torch.ones(6, 6)[1:5:2, ::3], False),
        (torch.ones(3, 1, 2).permute(2, 0, 1), False),
        (torch.ones(1).expand(4), True),
        (torch.ones(4).as_strided((2, 2), (1, 1)), True),
        (torch.ones(9).as_strided((3, 3), (2, 1)), True),
    ],
)
def test_overlap_is_known_from_the_strides(tensor: torch.Tensor, expected: bool) -> None:
    assert _overlaps_itself(tensor) is expected


def test_a_sum_is_taken_in_another_order() -> None:
    """Its operands nearly cancel, so the result depends on the order of summation."""
    x = torch.randn(1 << 14, generator=torch.Generator().manual_seed(0))
    x = torch.cat([x, -x.flip(0)])
    x[0] += 1e-3
    sampled = _sampled(torch.sum, x)
    assert sampled.std() > 1e-7


def test_random_numbers_are_the_programs() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        return torch.nn.functional.dropout(x, 0.5) * torch.rand(16).round()

    x = torch.ones(16)
    assert (_sampled(function, x) == function(x)).all()


def test_a_backward_pass_rounds_too() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad((x.sin() * 0.1).sum(), x)[0]

    x = torch.linspace(0, 1, 64, requires_grad=True)
    sampled = _sampled(function, x)
    assert (sampled != sampled[0]).any()


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation")
def test_an_operator_without_float64_gives_what_it_gives() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize()

    x = torch.linspace(0, 1, 11)
    assert torch.allclose(_sampled(function, x, count=2), function(x), rtol=1e-6)


@given(st.floats(2.0**-14, 60000.0), st.sampled_from(TYPES[:3]))
def test_a_result_goes_to_a_neighbour(number: float, dtype: torch.dtype) -> None:
    """A cast rounds up or down, by less than the distance of two neighbours plus a few units of float32."""
    x = torch.full((16,), number, dtype=torch.float64)
    sampled = _sampled(lambda value: value.to(dtype), x, count=1).double()
    assert ((sampled - x).abs() <= x * (torch.finfo(dtype).eps + 4 * torch.finfo(torch.float32).eps)).all()


def test_branches_of_a_conditional_round() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    sampled = _sampled(function, torch.linspace(0.1, 1, 64))
    assert (sampled != sampled[0]).any()


def test_a_result_that_is_exact_by_chance_moves_with_its_operands() -> None:
    """The mean is an element of the row, so that one is exactly 0: but the mean of float32 may be a unit off."""
    sampled = _sampled(lambda x: torch.nn.functional.layer_norm(x, (3,)), torch.tensor([[1000.0, 1000.25, 999.75]]))
    assert (sampled[:, 0, 0] != 0).any()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.amax(0),
        lambda x: torch.constant_pad_nd(x, (1, 1)),
        lambda x: x.sort().values,
        lambda x: (x > 0.5).to(x.dtype).sum(),
        lambda x: (x * 0) @ x,
        lambda x: (x > 0.5).to(x.dtype).mean(),
    ],
)
def test_a_reduction_that_rounds_nothing_stays(function: Callable[..., torch.Tensor]) -> None:
    x = torch.rand(64)
    assert (_sampled(function, x) == function(x)).all()


def test_a_remainder_is_off_by_units_of_its_dividend() -> None:
    x = torch.full((256,), 100.03)
    sampled = _sampled(lambda x: x % 0.1, x)
    assert (sampled - x % 0.1).abs().max() > 1e-5
    assert (_sampled(lambda x: x.round() % 3, x) == x.round() % 3).all()


def test_a_conjugated_result_is_rounded() -> None:
    x = torch.randn(8, 8, dtype=torch.complex64)
    products = lambda x: (x.conj() @ x.conj().T).conj().resolve_conj() * x.conj()  # noqa: E731
    sampled = _sampled(lambda x: torch.view_as_real(products(x).resolve_conj()), x)
    assert (sampled != sampled[0]).any()
    assert torch.allclose(sampled[0], torch.view_as_real(products(x).resolve_conj()), rtol=1e-4, atol=1e-4)


def test_types_of_eight_bits_are_for_storage() -> None:
    x = torch.rand(8)
    through = lambda x: x.to(torch.float8_e4m3fn).reshape(2, 4).contiguous().float().sum()  # noqa: E731
    assert torch.allclose(_sampled(through, x), through(x), rtol=1e-3)


def test_an_operator_that_reads_by_the_layout_reads_the_same_elements() -> None:
    columns = torch.rand(10)
    for seed in range(3):
        with StochasticRounding(seed):
            copied = torch.as_strided_copy(columns[::2], (3,), (2,))
        assert torch.equal(copied, columns[:6:2])
