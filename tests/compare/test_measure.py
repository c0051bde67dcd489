"""Measuring, in this process: times as `torch.utils.benchmark` has them by hand, memory, what a step is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils import benchmark

from dynadiag.compare.measure import WARM_UP, Measurer
from dynadiag.compare.row import quartiles
from dynadiag.compare.variant import Variant


def work(x: torch.Tensor) -> torch.Tensor:
    return (x @ x).relu().sum()


def measurer(fn: Any, *args: Any, **options: Any) -> Measurer:
    return Measurer((fn, args, {}), Variant(**{"name": "make", "mode": "eager", **options}))


def test_warm_calls_take_as_long_as_by_hand_with_torch() -> None:
    """Rounds in turn with those by hand, and a wide bound: other processes have this machine too."""
    x = torch.randn(192, 192)
    subject = measurer(work, x)
    subject.first()
    by_hand = benchmark.Timer("work(x)", globals={"work": work, "x": x}, num_threads=torch.get_num_threads())
    ours, theirs = list[float](), list[float]()
    for _ in range(5):
        ours += subject.round(0.05)["times"]
        theirs += by_hand.blocked_autorange(min_run_time=0.05).times
    assert 1 / 3 < quartiles(ours).median / quartiles(theirs).median < 3


def test_the_calls_of_one_variant_are_counted() -> None:
    """Each first call is timed by itself; a round's times are of one call, whatever the size of its blocks."""
    calls = 0

    def fn() -> None:
        nonlocal calls
        calls += 1

    subject = measurer(fn)
    assert len(subject.first()["seconds"]) == WARM_UP == calls
    times = subject.round(0.01)["times"]
    assert calls > 1000  # an empty function: blocks of very many
    assert sum(times) < 0.01


def test_memory_is_what_the_calls_needed_beyond_what_was_there() -> None:
    subject = measurer(lambda: torch.ones(16 << 20).sum())  # 64 MB at once
    first = subject.first()["memory"]
    warm = subject.round(0.01)["memory"]
    assert first["host"] < (200 << 20)  # nothing where an earlier test had more: the mark of this process stays
    assert warm["host"] is None or (60 << 20) <= warm["host"] < (100 << 20)
    assert (first["device"], warm["device"]) == (None, None)


def test_threads_are_left_as_the_program_set_them() -> None:
    before = torch.get_num_threads()
    seen = set()
    try:
        torch.set_num_threads(2)
        subject = measurer(lambda: seen.add(torch.get_num_threads()))
        assert subject.first()["threads"] == 2
        subject.round(0.001)
        assert seen == {2}
    finally:
        torch.set_num_threads(before)


def test_a_training_step_leaves_the_gradients_of_one_backward() -> None:
    net, x = torch.nn.Linear(4, 3), torch.randn(2, 4)
    net(x).mean().backward()
    expected = net.weight.grad
    assert expected is not None
    measurer(net, x, step="train").first()
    torch.testing.assert_close(net.weight.grad, expected)


def test_a_result_of_several_tensors_is_summed_and_parts_without_gradient_are_left_out() -> None:
    x = torch.randn(5, requires_grad=True)
    measurer(lambda x: {"a": x * 2, "b": (x.detach(), [x.sum()])}, x, step="train").first()
    torch.testing.assert_close(x.grad, torch.full((5,), 2 / 5 + 1))


def test_without_anything_that_requires_a_gradient_there_is_no_step() -> None:
    with pytest.raises(ValueError, match="requires a gradient"):
        measurer(work, torch.randn(4, 4), step="train").first()


def test_inference_records_no_gradients_and_autocast_is_on_where_it_is_asked_for() -> None:
    seen: list[tuple[bool, torch.dtype]] = []

    def fn(net: torch.nn.Module, x: torch.Tensor) -> None:
        y = net(x)
        seen.append((y.requires_grad, y.dtype))

    net, x = torch.nn.Linear(4, 3), torch.randn(2, 4)
    measurer(fn, net, x).first()
    measurer(fn, net, x, step="inference", amp="bfloat16").first()
    assert set(seen) == {(True, torch.float32), (False, torch.bfloat16)}


def test_a_variant_is_compiled_with_its_mode_backend_and_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def compiled(fn: Any, **options: Any) -> Any:
        asked.append(options)
        return fn

    monkeypatch.setattr(torch, "compile", compiled)
    measurer(work, mode="max-autotune", dynamic=True)
    measurer(work, mode="default", backend="aot_eager")
    measurer(work, mode="as-written")
    measurer(work)
    assert asked == [{"mode": "max-autotune", "dynamic": True}, {"backend": "aot_eager", "dynamic": None}]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_kernels_are_the_profilers_and_memory_is_torchs_own() -> None:
    x = torch.randn(512, 512, device="cuda")
    subject = measurer(work, x)
    subject.first()
    found = subject.round(0.05)
    torch.cuda.reset_peak_memory_stats()
    work(x)
    torch.cuda.synchronize()
    assert found["memory"]["device"] == torch.cuda.max_memory_allocated()
    counted = subject.count()["gpu"]
    assert counted["kernels"] >= counted["launches"] >= 3
    assert counted["triton_share"] == 0.0
