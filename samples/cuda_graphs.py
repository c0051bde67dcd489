"""Three steps that CUDA graphs have trouble with, and each without it: how many launches does a call take?

`mode="reduce-overhead"` replays compiled code in one launch. It does not where the code writes to an input, where a
mask decides how many rows there are, and it records anew where a weight gets other memory. Needs an NVIDIA GPU.

    dynadiag explain samples/cuda_graphs.py
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

CALLS = 12  # the first ones compile, warm up and record
Compiler = Callable[[Callable[..., object]], Callable[..., object]]


def centred_in_place(mean: Tensor, x: Tensor) -> Tensor:
    mean += (x.mean(0) - mean) * 0.1
    return torch.layer_norm(x - mean, (64,))


def centred(mean: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    mean = mean + (x.mean(0) - mean) * 0.1
    return torch.layer_norm(x - mean, (64,)), mean


def scores_of_rows(x: Tensor, keep: Tensor) -> Tensor:
    y = torch.softmax(torch.relu(x) @ x.t(), -1)
    y = y + y[keep].sum(0)
    return torch.layer_norm(y @ x, (64,)).sigmoid() @ x.t()


def scores_of_all(x: Tensor, keep: Tensor) -> Tensor:
    y = torch.softmax(torch.relu(x) @ x.t(), -1)
    y = y + torch.where(keep[:, None], y, 0).sum(0)
    return torch.layer_norm(y @ x, (64,)).sigmoid() @ x.t()


def mean_written(compiler: Compiler, inputs: Tensor) -> Iterator[Tensor]:
    mean, step = torch.zeros_like(inputs[0, 0]), compiler(centred_in_place)
    for x in inputs:
        yield step(mean, x)


def mean_returned(compiler: Compiler, inputs: Tensor) -> Iterator[Tensor]:
    mean, step = torch.zeros_like(inputs[0, 0]), compiler(centred)
    for x in inputs:
        result, new = step(mean, x)
        mean.copy_(new)
        yield result


def rows_picked(compiler: Compiler, inputs: Tensor) -> Iterator[Tensor]:
    step = compiler(scores_of_rows)
    for x in inputs:
        yield step(x, x[:, 0] > 0)


def rows_masked(compiler: Compiler, inputs: Tensor) -> Iterator[Tensor]:
    step = compiler(scores_of_all)
    for x in inputs:
        yield step(x, x[:, 0] > 0)


def weight_moved(compiler: Compiler, inputs: Tensor) -> Iterator[Tensor]:
    layer = torch.nn.Linear(64, 64, bias=False, device=inputs.device)
    moving = compiler(lambda x: layer(layer(x).relu()))
    for x, new in zip(inputs, inputs.flip(0), strict=True):
        layer.weight.data = new
        yield moving(x)


def weight_copied(compiler: Compiler, inputs: Tensor) -> Iterator[Tensor]:
    layer = torch.nn.Linear(64, 64, bias=False, device=inputs.device)
    step = compiler(lambda x: layer(layer(x).relu()))
    for x, new in zip(inputs, inputs.flip(0), strict=True):
        layer.weight.copy_(new)
        yield step(x)


PROGRAMS = (mean_written, mean_returned, rows_picked, rows_masked, weight_moved, weight_copied)


def launches_of(call: Callable[[], object]) -> int:
    """Return how often a call makes the GPU begin something. A CUDA graph is one launch."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as measured:
        call()
        torch.cuda.synchronize()
    return sum(event.name.startswith("cu") and "Launch" in event.name for event in measured.events())


def main() -> None:
    if not torch.cuda.is_available():
        print("CUDA graphs need an NVIDIA GPU, and torch sees none: nothing was compiled.\nresult none")
        return
    torch.manual_seed(0)
    torch._dynamo.config.capture_dynamic_output_shape_ops = True  # else the mask breaks the graph
    inputs = torch.randn(CALLS, 64, 64, device="cuda")
    digest = hashlib.sha256()
    for program in PROGRAMS:
        expected = list(program(lambda step: step, inputs))
        results = program(lambda step: torch.compile(step, mode="reduce-overhead"), inputs)
        for wanted in expected[:-1]:  # a result is gone with the next call
            torch.testing.assert_close(next(results), wanted, rtol=1e-3, atol=1e-3)
        last: list[Tensor] = []
        count = launches_of(lambda results=results, last=last: last.append(next(results).cpu()))
        torch.testing.assert_close(last[0], expected[-1].cpu(), rtol=1e-3, atol=1e-3)
        digest.update(last[0].numpy().tobytes())
        print(f"{program.__name__}: {count} launch{'' if count == 1 else 'es'} a call")
    print("result", digest.hexdigest()[:16])


if __name__ == "__main__":
    with torch.no_grad():
        main()
