"""Measuring, in this process: times as `torch.utils.benchmark` has them by hand, memory, what a step is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch.utils import benchmark

import dynadiag
from dynadiag.compare.measure import MIN_PROFILED_CALLS, WARM_UP_CALLS, Measurer
from dynadiag.compare.variant import Variant
from dynadiag.explanation.breaks import group_breaks, roots
from dynadiag.explanation.runtime_cost import WarmCalls, costs


def work(x: torch.Tensor) -> torch.Tensor:
    return (x @ x).relu().sum()


def measurer(fn: Any, *args: Any, **options: Any) -> Measurer:
    return Measurer((fn, args, {}), Variant(**{"name": "make", "mode": "eager", **options}))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Two threads that wait for each other take 400 times as long where another process has one of their cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_warm_calls_take_as_long_as_by_hand_with_torch() -> None:
    """Rounds in turn with those by hand, the fastest blocks of each: other processes have this machine too."""
    x = torch.randn(192, 192)
    subject = measurer(work, x)
    subject.first()
    by_hand = benchmark.Timer("work(x)", globals={"work": work, "x": x}, num_threads=1)
    ours, theirs = list[float](), list[float]()
    for _ in range(40):
        ours += subject.round(0.05)["times"]
        theirs += by_hand.blocked_autorange(min_run_time=0.05).times
        if 1 / 2 < min(ours) / min(theirs) < 2:
            return
    pytest.fail(f"{min(ours)} s a call, {min(theirs)} s by hand")


def test_the_calls_of_one_variant_are_counted() -> None:
    """Each first call is timed by itself; a round's times are of one call, whatever the size of its blocks."""
    calls = 0

    def fn() -> None:
        nonlocal calls
        calls += 1

    subject = measurer(fn)
    assert len(subject.first()["seconds"]) == WARM_UP_CALLS == calls
    times = subject.round(0.01)["times"]
    assert calls > 1000  # an empty function: blocks of very many
    assert sum(times) < 0.01


def test_a_peak_below_what_was_there_is_no_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux counts pages in batches: "-1.6e+05 B" was reported."""
    monkeypatch.setattr("dynadiag.compare.measure._memory_status", {"VmRSS": 500_000, "VmHWM": 340_000}.__getitem__)
    assert measurer(lambda: None).first()["memory"]["host"] == 0


def test_memory_is_what_the_tensors_of_a_call_held_at_once() -> None:
    kept = torch.ones(1 << 20)  # not of the call

    def call() -> torch.Tensor:
        x = kept * 2
        x = (x + 1).sin()  # three at once, then one
        return x.sum()

    subject = measurer(call)
    assert subject.first()["memory"]["device"] is None
    found = [subject.count()["memory"] for _ in range(2)]
    assert found[0] == found[1] == {"host": 3 * (4 << 20), "device": None}


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


def spin(turns: int) -> int:
    return sum(number * number % 7 for number in range(turns))


@torch.compiler.disable
def python_work(turns: int) -> None:
    spin(turns)


def three_breaks(x: torch.Tensor) -> torch.Tensor:
    x = x.sin()
    python_work(2_000)
    x = x.cos()
    python_work(50_000)
    x = x.tanh()
    python_work(10_000)
    return x.exp()


def test_breaks_are_ranked_by_the_python_that_was_put_there(tmp_path: Path) -> None:
    """1, 25 and 5 parts of the same work: the dearest first, and each several times the next."""
    torch._dynamo.reset()
    subject = measurer(three_breaks, torch.randn(64), mode="default", backend="eager")
    with dynadiag.record(tmp_path / "calls.dynadiag") as path:
        subject.first()
    subject.profile(0.05)
    profile = msgspec.convert(subject.warm()["warm"], WarmCalls)
    with dynadiag.open(path) as recording:
        breaks = group_breaks(recording.breaks())
    paid = costs(breaks, profile)
    found = sorted(roots(breaks), key=lambda root: -paid[root.index].seconds)
    source = Path(__file__).read_text().splitlines()
    assert [source[(item.span.line or 0) - 1].strip() for item in found] == [
        f"python_work({turns})" for turns in ("50_000", "10_000", "2_000")
    ]
    dear, middle, cheap = (paid[item.index].seconds for item in found)
    assert dear > 2 * middle > 4 * cheap > 0
    assert dear + middle + cheap < 1.5 * profile.seconds  # parts and whole are medians, each of its own
    assert all((cost.graphs, cost.entries, cost.operators) == (1, 1, 0) for cost in paid.values())


def test_operators_between_graphs_are_counted_and_it_is_known_which_code_runs() -> None:
    """The first code fits the first size only: after another size, one for any size takes its place for good. What is
    profiled is the code that was timed, which is the first.
    """
    torch._dynamo.reset()

    @torch.compiler.disable
    def uncompiled(x: torch.Tensor) -> torch.Tensor:
        return (x + 1).softmax(0) * 2

    subject = measurer(lambda x: uncompiled(x.sin()).cos(), torch.randn(8), mode="default", backend="eager")
    subject.first()
    subject.profile(0.0)
    subject.inputs([(torch.randn(9),)])
    profile = msgspec.convert(subject.warm()["warm"], WarmCalls)
    first, rest = profile.uses
    assert (first.operators, rest.operators) == (3, 0)
    assert profile.calls == MIN_PROFILED_CALLS
    assert (first.compile_id, rest.compile_id) == ("0/0", "1/0")
    assert profile.others == ("0/1", "1/1")


def test_a_profile_of_a_training_step_is_of_the_call_alone() -> None:
    torch._dynamo.reset()
    net, x = torch.nn.Linear(4, 3), torch.randn(2, 4)
    subject = measurer(net, x, mode="default", backend="aot_eager", step="train")
    subject.first()
    subject.profile(0.0)
    profile = msgspec.convert(subject.warm()["warm"], WarmCalls)
    assert [(use.calls, use.graphs, use.operators) for use in profile.uses] == [(1, 1, 0)]
    assert profile.outside_operators == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_kernels_are_the_profilers_and_memory_is_torchs_own() -> None:
    x = torch.randn(512, 512, device="cuda")
    subject = measurer(work, x)
    subject.first()
    torch.cuda.reset_peak_memory_stats()
    work(x)
    torch.cuda.synchronize()
    found = subject.count()
    assert found["memory"]["device"] == torch.cuda.max_memory_allocated()
    counted = found["gpu"]
    assert counted["kernels"] >= counted["launches"] >= 3
    assert counted["triton_share"] == 0.0
    assert 0 <= counted["tensor_core_share"] <= 1
    assert counted["cold"] > 0
