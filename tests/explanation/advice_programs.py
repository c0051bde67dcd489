"""The programs on which advice was tried: each as it is, and as the advice says.

A program gets `torch.compile` and returns its results, which must be the same both ways. Their names stand in the table
of advice.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import enum
import functools
import io
import logging
import math
import random
import sys
import tempfile
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
import msgspec
import numpy as np
import pytest
import torch
import torch._inductor.config as inductor_config
import torch.distributed as dist
from torch import nn
from torch._inductor.cpu_vec_isa import pick_vec_isa
from torch.autograd import forward_ad
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.fx.experimental import _config as shapes_config
from torch.nn.attention.flex_attention import create_mask
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.flop_counter import FlopCounterMode
from tqdm import tqdm  # type: ignore[import-untyped]  # its stubs are a package of their own

Compile = Callable[..., Callable[..., Any]]
Program = Callable[[Compile], Any]
config = torch._dynamo.config
LOG = logging.getLogger(__name__)
x, y, zeros = torch.arange(4.0), torch.ones(4), torch.zeros(4)
number, name = 1, "fast"


def calls(fn: Callable[..., Any], *each: tuple[Any, ...], **options: Any) -> Program:
    """A program that compiles a function and calls it with each of these arguments."""

    def run(compile_: Compile) -> list[Any]:
        compiled = compile_(fn, **options)
        return [compiled(*arguments) for arguments in each]

    return run


def shapes(fn: Callable[..., Any], *each: tuple[Any, ...]) -> Program:
    """The same, with the shapes of the results alone."""
    return lambda compile_: [result.shape for result in calls(fn, *each)(compile_)]


def configured(program: Program, follow: Callable[[], object]) -> Program:
    """The program after a change of torch's configuration, which the test takes back."""

    def run(compile_: Compile) -> Any:
        follow()
        return program(compile_)

    return run


# Graph breaks.


def printing(show: Callable[[torch.Tensor], Any], **options: Any) -> Program:
    """A program that prints something half way."""

    def fn(v: torch.Tensor) -> torch.Tensor:
        half = v + 1
        print(show(half), **options)  # noqa: T201
        return half * 2

    return calls(fn, (x,))


def shows_its_mean(v: torch.Tensor) -> torch.Tensor:
    print(v.mean())  # noqa: T201
    return v * 2


def warns_of_its_mean(v: torch.Tensor) -> torch.Tensor:
    warnings.warn("mean", stacklevel=2)
    return v * 2


def shown(program: Program) -> Program:
    """The program, with the characters that it prints among the results."""

    def run(compile_: Compile) -> list[Any]:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            results = program(compile_)
        return [*results, *map(ord, out.getvalue())]

    return run


def prints_a_mean_afterwards(compile_: Compile) -> list[Any]:
    half, result = compile_(lambda v: (v + 1, (v + 1) * 2 - 1))(x)
    print(half.mean())  # noqa: T201
    return [result]


def prints_numbers(v: torch.Tensor) -> torch.Tensor:
    half = v + 1
    print(1, 2.5, True, None)  # noqa: T201
    return half * 2


def prints_a_size(v: torch.Tensor) -> torch.Tensor:
    half = v + 1
    print(half.shape)  # noqa: T201
    return half * 2


def prints_a_size_as_text(v: torch.Tensor) -> torch.Tensor:
    half = v + 1
    print(f"{half.shape}")  # noqa: T201
    return half * 2


def prints_a_list(v: torch.Tensor) -> torch.Tensor:
    half = v + 1
    print([1, 2])  # noqa: T201
    return half * 2


def prints_a_list_as_text(v: torch.Tensor) -> torch.Tensor:
    half = v + 1
    print(f"{[1, 2]}")  # noqa: T201
    return half * 2


def prints_a_dict(v: torch.Tensor) -> torch.Tensor:
    half = v + 1
    print({"half": half})  # noqa: T201
    return half * 2


def prints_afterwards(compile_: Compile) -> Any:
    half, result = compile_(lambda v: (v + 1, (v + 1) * 2))(x)
    print({"half": half})  # noqa: T201
    return [result]


def adds_print() -> None:
    config.reorderable_logging_functions.add(print)


def warns(v: torch.Tensor) -> torch.Tensor:
    half = v + 1
    warnings.warn("half way")  # noqa: B028 - torch moves no call with a keyword
    return half * 2


def warns_with_a_keyword(v: torch.Tensor) -> torch.Tensor:
    half = v + 1
    warnings.warn("half way", stacklevel=2)
    return half * 2


@torch.compiler.disable
def seen(v: torch.Tensor) -> None:
    held.append(v)


def calls_a_disabled_function(v: torch.Tensor) -> torch.Tensor:
    half = v + 1
    seen(half)
    return half * 2


def calls_it_afterwards(compile_: Compile) -> list[torch.Tensor]:
    half, result = compile_(lambda v: (v + 1, (v + 1) * 2))(x)
    seen(half)
    return [result]


def splits_by_a_list(v: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return torch.stack([part.sum() for part in torch.split(v, lengths.tolist())])


def logs(v: torch.Tensor) -> torch.Tensor:
    half = v + 1
    LOG.warning("half way")
    return half * 2


def asks_a_logger(v: torch.Tensor) -> Any:
    v = v * 2
    if logging.getLogger("dynadiag.test").isEnabledFor(logging.DEBUG):
        v = v + 0
    return v + 1


def takes_the_answer(v: torch.Tensor, debug: bool) -> Any:
    v = v * 2
    if debug:
        v = v + 0
    return v + 1


class Hooked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        nn.init.ones_(self.inner.weight)
        nn.init.zeros_(self.inner.bias)
        self.inner.register_full_backward_hook(lambda _module, _inputs, _outputs: None)

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.inner(v))


def backward(module: Callable[..., Any]) -> list[torch.Tensor]:
    v = torch.ones(2, 4, requires_grad=True)
    module(v).sum().backward()
    assert v.grad is not None
    return [v.grad]


def hooked_forward_alone(compile_: Compile) -> list[torch.Tensor]:
    module = Hooked()
    module.inner.forward = compile_(module.inner.forward)
    return backward(module)


def takes_an_item(v: torch.Tensor) -> torch.Tensor:
    return v * v.sum().item()


class Mean:
    """A running mean of losses, and the least of them."""

    def __init__(self) -> None:
        self.mean: float | None = None
        self.best = float("inf")

    def keep(self, number: float) -> None:
        self.mean = number if self.mean is None else 0.5 * self.mean + 0.5 * number
        if self.mean < self.best:
            self.best = self.mean


def keeps_a_mean(*, inside: bool) -> Program:
    def run(compile_: Compile) -> list[Any]:
        kept, results = Mean(), []

        def loss(v: torch.Tensor) -> torch.Tensor:
            total = v.square().sum()
            number = total.item()
            kept.mean = number if kept.mean is None else 0.5 * kept.mean + 0.5 * number
            if kept.mean < kept.best:
                kept.best = kept.mean
            return total

        def alone(v: torch.Tensor) -> torch.Tensor:
            return v.square().sum()

        fn = compile_(loss if inside else alone)
        for factor in (3, 2, 1):
            results.append(fn(x * factor))
            if not inside:
                kept.keep(results[-1].item())
        return [results, kept.best]

    return run


def groups_by_items(v: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    groups: dict[int, list[torch.Tensor]] = {}
    for row, label in zip(v, labels.tolist(), strict=True):
        groups.setdefault(label, []).append(row)
    return torch.stack([torch.stack(rows).sum(0) for rows in groups.values()])


def groups_by_index(v: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return v.new_zeros(2).index_add(0, labels, v)


def sorts_by_items(v: torch.Tensor) -> torch.Tensor:
    return v * sorted(each.item() for each in v)[0]


def sorts_a_list(v: torch.Tensor) -> torch.Tensor:
    numbers = v.tolist()
    numbers.sort()
    return v * numbers[0]


def sorts_by_torch(v: torch.Tensor) -> torch.Tensor:
    return v * torch.sort(v).values[0]


def sizes_by_an_item(v: torch.Tensor) -> torch.Tensor:
    number = int(v.max()) + 1
    return torch.zeros(number) + 1


def sized_before(compile_: Compile) -> list[Any]:
    return [compile_(lambda number: torch.zeros(number + 1) + 1)(int(x.max()))]


class Shown(nn.Module):
    """A module that shows or keeps something in what `checkpoint` is given."""

    def __init__(self, *, keeps: bool, inside: bool) -> None:
        super().__init__()
        self.keeps, self.inside, self.peak = keeps, inside, 0.0

    def block(self, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        half = v * 2
        if self.inside:
            self.show(half)
        return half + v, half

    def show(self, half: torch.Tensor) -> None:
        if self.keeps:
            self.peak = half.max().item()
        else:
            print("block", half.shape[0])  # noqa: T201

    def forward(self, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        whole, half = checkpoint(self.block, v, use_reentrant=False)
        return whole.sum(), half


def checkpointed(*, keeps: bool, inside: bool) -> Program:
    def run(compile_: Compile) -> list[Any]:
        module = Shown(keeps=keeps, inside=inside)
        v = torch.ones(4, requires_grad=True)
        whole, half = compile_(module)(v)
        if not inside:
            module.show(half)
        whole.backward()
        return [v.grad, module.peak]

    return run


def counts_operators(*, stance: bool) -> Program:
    def run(compile_: Compile) -> list[Any]:
        compiled = compile_(lambda v: v @ v)
        square = torch.ones(2, 2)
        with torch.compiler.set_stance("force_eager" if stance else "default"), FlopCounterMode(display=False) as mode:
            compiled(square)
        return [compiled(square), mode.get_total_flops()]

    return run


def returns_what_it_was_given(*, decides: bool) -> Program:
    def forward(v: torch.Tensor, noisy: bool) -> torch.Tensor:
        return v + 1 if noisy else v

    def run(compile_: Compile) -> list[Any]:
        compiled = compile_(forward)
        v = torch.ones(3)
        return [compiled(v, noisy) if noisy or decides else v for noisy in (True, False, True)]

    return run


def branches_on_an_item(v: torch.Tensor) -> torch.Tensor:
    total = v.sum().item()
    doubled = v * 2
    if total > 3:
        return doubled + 1
    return doubled - 1


def compares_what_it_kept(v: torch.Tensor) -> torch.Tensor:
    kept = []
    for part in (v, v * 2):
        kept.append(part.sum().item())
    if kept[-1] > kept[0]:
        return v + 1
    return v - 1


def compares_kept_tensors(v: torch.Tensor) -> torch.Tensor:
    kept = [part.sum() for part in (v, v * 2)]
    return torch.where(kept[-1] > kept[0], v + 1, v - 1)


def branches_on_a_size(v: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    longest = counts.max().item()
    kept = v[:longest]
    if longest > 2:
        kept = kept * 2
    return kept.sum(0)


def compares_beside_a_size(v: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    most = counts.max()
    longest = most.item()
    kept = v[:longest]
    kept = torch.where(most > 2, kept * 2, kept)
    return kept.sum(0)


def shows_what_it_compared(v: torch.Tensor) -> torch.Tensor:
    kept = []
    for part in (v, v * 2):
        kept.append(part.sum().item())
    if kept[-1] > kept[0]:
        print("more")  # noqa: T201
    return v * 2


def shows_afterwards(compile_: Compile) -> Any:
    kept, result = compile_(lambda v: ([part.sum() for part in (v, v * 2)], v * 2))(x)
    if kept[-1] > kept[0]:
        print("more")  # noqa: T201
    return [result]


def chooses_by_a_tensor(v: torch.Tensor) -> torch.Tensor:
    total = v.sum()
    doubled = v * 2
    return torch.where(total > 3, doubled + 1, doubled - 1)


def takes_one_side_by_a_tensor(v: torch.Tensor) -> Any:
    total = v.sum()
    return torch.cond(total > 3, lambda a: a + 1, lambda a: a - 1, (v * 2,))


def branches_by_what_is_made(v: torch.Tensor) -> torch.Tensor:
    total = v.to(torch.int64).sum().item()
    made = torch.zeros(int(total))
    if made.numel() > 3:
        return v + 1
    return v - 1


def branches_as_always(v: torch.Tensor) -> torch.Tensor:
    total = v.to(torch.int64).sum().item()
    made = torch.zeros(int(total))
    torch._check(made.numel() > 3)
    if made.numel() > 3:
        return v + 1
    return v - 1


def raises_by_an_item(v: torch.Tensor) -> torch.Tensor:
    total = v.sum().item()
    if total == 0:
        raise ValueError("nothing")
    return v * 2


def requires_an_item(v: torch.Tensor) -> torch.Tensor:
    total = v.sum().item()
    torch._check(total != 0)
    return v * 2


def branches_on_how_many(v: torch.Tensor) -> torch.Tensor:
    found = v.nonzero()
    number = found.shape[0]
    if number > 2:
        return v + 1
    return v - 1


def takes_one_side_by_how_many(v: torch.Tensor) -> Any:
    number = v.nonzero().shape[0]
    return torch.cond(number > 2, lambda a: a + 1, lambda a: a - 1, (v,))


def raises_on_values(v: torch.Tensor) -> torch.Tensor:
    half = v / 2
    if (half < 0).any():
        raise ValueError("negative")
    return half + 1


def keeps_some_items(v: torch.Tensor, sizes: tuple[int, ...] = (1, 2, 3, 4)) -> list[int]:
    half = v / 2
    return [sizes[i] if sizes else i for i in range(len(half)) if half[i] > 0.5]


def keeps_them_afterwards(compile_: Compile) -> list[Any]:
    half = compile_(lambda v: v / 2)(x)
    return [[i + 1 for i in range(len(half)) if half[i] > 0.5]]


def keeps_and_scales(v: torch.Tensor) -> torch.Tensor:
    half = v / 2
    if half.sum() > 0:
        for each in half.unbind():
            HISTORY.append(each)
        half = half * 2
    return half + 1


def keeps_and_scales_afterwards(compile_: Compile) -> list[torch.Tensor]:
    half, is_positive = compile_(lambda v: (v / 2, (v / 2).sum() > 0))(x)
    rest = compile_(lambda half: half + 1)
    if is_positive:
        HISTORY.extend(half.unbind())
        half = half * 2
    return [rest(half)]


def in_low_precision(v: torch.Tensor, low: bool) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=low):
        return v.reshape(2, 2) @ v.reshape(2, 2)


def in_low_precision_from(first: int) -> Program:
    """A program whose compiled function fails once the number of a step is a symbol."""

    def step(v: torch.Tensor, n: int) -> torch.Tensor:
        return in_low_precision(v, n > first)

    def run(compile_: Compile) -> list[torch.Tensor]:
        compiled, results = compile_(step), list[torch.Tensor]()
        for n in (2, 3, 4):
            try:
                results.append(compiled(x, n))
            except torch._dynamo.exc.InternalTorchDynamoError:
                results.append(step(x, n))
        return results

    return run


def leaves_early(v: torch.Tensor) -> torch.Tensor | None:
    half = v / 2
    if (half < 0).any():
        return None
    return half + 1


def leaves_afterwards(compile_: Compile) -> list[Any]:
    first = compile_(lambda v: (v / 2, (v / 2 < 0).any()))
    rest = compile_(lambda half: half + 1)
    half, is_negative = first(x)
    return [None if is_negative else rest(half)]


def catches_what_it_raises(v: torch.Tensor) -> torch.Tensor:
    try:
        half = v / 2
        if (half < 0).any():
            raise ValueError("negative")
    except ValueError:
        half = v * 0
    return half + 1


def chooses_what_it_caught(v: torch.Tensor) -> torch.Tensor:
    half = v / 2
    return torch.where((half < 0).any(), v * 0, half) + 1


def handles_it_afterwards(compile_: Compile) -> list[torch.Tensor]:
    half, negative = compile_(lambda v: (v / 2, (v / 2 < 0).any()))(x)
    return [(x * 0 if negative else half) + 1]


def raises_afterwards(compile_: Compile) -> list[torch.Tensor]:
    result, negative = compile_(lambda v: (v / 2 + 1, (v / 2 < 0).any()))(x)
    if negative:
        raise ValueError("negative")
    return [result]


def writes_if_any(v: torch.Tensor) -> torch.Tensor:
    low = v < 0.5
    half = v / 2
    if low.any():
        half[low] = 0.0
    return half + 1


def writes_always(v: torch.Tensor) -> torch.Tensor:
    half = v / 2
    half[v < 0.5] = 0.0
    return half + 1


def clips_in_place(v: torch.Tensor) -> torch.Tensor:
    clipped, norm = v * 2, v.norm()
    if norm > 1.0:
        factor = 1.0 / (norm + 1e-6)
        clipped.mul_(factor)
    return clipped + 1


def clips_always(v: torch.Tensor) -> torch.Tensor:
    clipped, norm = v * 2, v.norm()
    clipped.mul_(torch.where(norm > 1.0, 1.0 / (norm + 1e-6), 1.0))
    return clipped + 1


def keeps_the_largest(v: torch.Tensor) -> torch.Tensor:
    largest = torch.zeros(())
    if v.sum() > 0:
        largest.copy_(torch.maximum(largest, v.max()))
    return v + largest


def keeps_the_largest_always(v: torch.Tensor) -> torch.Tensor:
    largest = torch.zeros(())
    largest.copy_(torch.where(v.sum() > 0, torch.maximum(largest, v.max()), largest))
    return v + largest


def picks_of_a_list(v: torch.Tensor) -> torch.Tensor:
    lengths = [1, 2, 3, 4]
    return v * lengths[int(v.argmax())]


def picks_of_a_tensor(v: torch.Tensor) -> torch.Tensor:
    lengths = torch.tensor([1, 2, 3, 4])
    return v * lengths[v.argmax().reshape(1)]


def writes_to_a_transposed(v: torch.Tensor) -> torch.Tensor:
    rows = v.expand(2, 4).clone()
    out = torch.empty(4, 2).T
    torch.add(rows, 1, out=out)
    return out * 2


def takes_the_result(v: torch.Tensor) -> torch.Tensor:
    rows = v.expand(2, 4).clone()
    out = torch.add(rows, 1)
    return out * 2


class Statistics:
    def __init__(self, mean: torch.Tensor) -> None:
        self.mean = mean

    @torch.no_grad()
    def centred(self, v: torch.Tensor) -> torch.Tensor:
        return v - self.mean

    def centred_inside(self, v: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return v - self.mean


def calls_a_decorated_method(v: torch.Tensor) -> torch.Tensor:
    made = Statistics(v.mean())
    return made.centred(v) * 2


def calls_a_plain_method(v: torch.Tensor) -> torch.Tensor:
    made = Statistics(v.mean())
    return made.centred_inside(v) * 2


def asserts_in_place(v: torch.Tensor) -> torch.Tensor:
    half = v / 2
    torch._assert_async((half >= 0).all(), "negative")
    return half + 1


def rendered(v: torch.Tensor) -> torch.Tensor:
    half = v + 1
    jinja2.Template("{{ n }}").render(n=1)
    return half * 2


def renders_afterwards(compile_: Compile) -> list[torch.Tensor]:
    results = [compile_(lambda v: (v + 1) * 2)(x)]
    jinja2.Template("{{ n }}").render(n=1)
    return results


class Renders(nn.Module):
    """A module that calls a library beside its layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)
        nn.init.ones_(self.layer.weight)

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        half = self.layer(v)
        jinja2.Template("{{ n }}").render(n=1)
        return half * 2


def renders(*, whole: bool) -> Program:
    def run(compile_: Compile) -> list[torch.Tensor]:
        module = Renders()
        nn.init.zeros_(module.layer.bias)
        if whole:
            return [compile_(module)(x).detach()]
        module.layer.forward = compile_(module.layer.forward)
        return [module(x).detach()]

    return run


def loops_by_an_item(v: torch.Tensor) -> torch.Tensor:
    total = v.sum().item()
    while total > 3:
        v = v + 1
        total = total - 2
    return v


def is_enough(number: float) -> bool:
    return number > 20


def ends_a_loop_by_a_call(v: torch.Tensor) -> torch.Tensor:
    for _ in range(4):
        v = v * 2
        done = is_enough(v.sum().item())
        if done:
            break
    return v


def doubles_outside(compile_: Compile) -> torch.Tensor:
    fn, v = compile_(lambda v: v * 2), x
    for _ in range(4):
        v = fn(v)
        if is_enough(v.sum().item()):
            break
    return v


def loops_by_a_tensor(v: torch.Tensor) -> Any:
    return torch.while_loop(lambda a, total: total > 3, lambda a, total: (a + 1, total - 2), (v, v.sum()))[0]


def clips(*, checks: bool) -> Program:
    def run(compile_: Compile) -> Any:
        weight = nn.Parameter(x.clone())
        weight.grad = y.clone()
        return compile_(lambda: nn.utils.clip_grad_norm_([weight], 1.0, error_if_nonfinite=checks))()

    return run


RECURRENT = nn.LSTM(1, 2, batch_first=True).requires_grad_(False)
TRAINED = nn.GRU(1, 2, batch_first=True)


def takes_the_last(v: torch.Tensor) -> Any:
    return RECURRENT(v.view(1, -1, 1))[0][:, -1] * 2


def trains_a_gru(compile_: Compile) -> Any:
    TRAINED.zero_grad()
    compile_(lambda v: TRAINED(v.view(1, -1, 1))[0].sum())(x).backward()
    return TRAINED.weight_hh_l0.grad


def takes_the_last_packed(v: torch.Tensor) -> Any:
    padded, lengths = v.view(2, 2, 1), torch.tensor([2, 1])
    packed = torch.nn.utils.rnn.pack_padded_sequence(padded, lengths, batch_first=True)
    _, (last, _) = RECURRENT(packed)
    return last[-1] * 2


def takes_the_last_padded(v: torch.Tensor) -> Any:
    padded, lengths = v.view(2, 2, 1), torch.tensor([2, 1])
    out, _ = RECURRENT(padded)
    return out[torch.arange(len(lengths)), lengths - 1] * 2


def warns_of_values(v: torch.Tensor) -> torch.Tensor:
    half = v / 2
    if torch.isnan(half).any():
        logging.getLogger("values").warning("nan")
    return half + 1


def warns_afterwards(compile_: Compile) -> Any:
    result, found = compile_(lambda v: (v / 2 + 1, torch.isnan(v / 2).any()))(x)
    if found:
        logging.getLogger("values").warning("nan")
    return [result]


def allows_rnn() -> None:
    config.allow_rnn = True


def captures() -> None:
    config.capture_scalar_outputs = config.capture_dynamic_output_shape_ops = True


def whole(fn: Callable[..., Any], fallback: Callable[..., Any]) -> Program:
    """A program that demands one graph, and runs uncompiled where it gets none."""

    def run(compile_: Compile) -> list[Any]:
        try:
            return [compile_(fn, fullgraph=True)(x)]
        except Exception:  # noqa: BLE001 - the failed compile is what the advice is about
            return [fallback(x)]

    return run


def multiplies(v: torch.Tensor) -> torch.Tensor:
    return v * v.sum()


def finds(v: torch.Tensor) -> torch.Tensor:
    return v.nonzero() * 2


def of_experts(skips: bool) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    def mix(v: torch.Tensor, experts: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(v)
        for expert in range(3):
            (rows,) = torch.where(experts == expert)
            if skips and rows.numel() == 0:
                continue
            out = out.index_add(0, rows, v[rows] * (expert + 1))
        return out

    return mix


def times_steps(v: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    return v * (steps[:, None] if steps.dim() == 1 else steps)


def defines_a_class(v: torch.Tensor) -> torch.Tensor:
    doubled = v * 2

    class Result:
        def __init__(self, value: torch.Tensor) -> None:
            self.value = value

    return Result(doubled).value + v


class DefinedResult:
    def __init__(self, value: torch.Tensor) -> None:
        self.value = value


def takes_a_class(v: torch.Tensor) -> torch.Tensor:
    return DefinedResult(v * 2).value + v


def counts_values(v: torch.Tensor, picked: torch.Tensor) -> Any:
    return v * torch.bincount(picked, minlength=4)


def counts_into(v: torch.Tensor, picked: torch.Tensor) -> Any:
    return v * picked.new_zeros(4).scatter_add(0, picked, torch.ones_like(picked))


def lists_the_counts(v: torch.Tensor, picked: torch.Tensor) -> Any:
    sizes = torch.bincount(picked).tolist()
    return [part * 2 for part in torch.split(v, sizes)]


def takes_the_sizes(v: torch.Tensor, sizes: list[int]) -> Any:
    return [part * 2 for part in torch.split(v, sizes)]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        return v + self.second(torch.relu(self.first(v)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            v = block(v)
        return v


@contextmanager
def one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def ddp(order: Callable[[Compile, nn.Module], Callable[..., Any]]) -> Program:
    def run(compile_: Compile) -> list[torch.Tensor]:
        with one_rank():
            return [order(compile_, Net())(torch.ones(2, 4)).detach()]

    return run


def sharded(blocks_alone: bool) -> Program:
    """FSDP2 on each block and on the model, compiled as a whole or block by block."""

    def run(compile_: Compile) -> list[torch.Tensor]:
        with one_rank():
            mesh, model = init_device_mesh("cpu", (1,)), Net()
            for block in model.blocks:
                if blocks_alone:
                    block.compile(backend="eager")
                fully_shard(block, mesh=mesh)
            fully_shard(model, mesh=mesh)
            called = model if blocks_alone else compile_(model)
            return [called(torch.ones(2, 4, requires_grad=True)).detach()]

    return run


def raises(v: torch.Tensor, options: dict[str, int] | None) -> torch.Tensor:
    half = v + 1
    return half * options["times"]  # type: ignore[index]  # that it may be None is the fault


def caught(fn: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return fn(*arguments)
    except TypeError:
        return None


def raises_inside(compile_: Compile) -> list[Any]:
    return [caught(compile_(raises), x, None)]


def checks_before(compile_: Compile) -> list[Any]:
    fn, options = compile_(raises), None
    return [None if options is None else fn(x, options)]


class Output:
    def __init__(self, value: torch.Tensor) -> None:
        self.value = value


def the_rest(value: torch.Tensor) -> torch.Tensor:
    return value * 2 + 1


def hides_tensors_in_an_object(v: Output) -> Any:
    graph_break()
    return v.value * 2 + 1


def passes_tensors_to_a_function(compile_: Compile) -> list[torch.Tensor]:
    rest = compile_(the_rest)

    def fn(v: Output) -> Any:
        return rest(v.value)

    return [fn(Output(x))]


def graph_break() -> None:
    torch._dynamo.graph_break()


def fixes_a_size(v: torch.Tensor) -> torch.Tensor:
    return v + torch.ones(4)


def marks(mark: Callable[..., Any]) -> Program:
    def run(compile_: Compile) -> list[Any]:
        v = x.clone()
        mark(v, 0)
        return [failing(compile_(fixes_a_size), v)]

    return run


def failing(fn: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return fn(*arguments)
    except Exception:  # noqa: BLE001 - the failed compile is what the advice is about
        return fixes_a_size(*arguments)


def sleeps(v: torch.Tensor) -> torch.Tensor:
    half = v + 1
    time.sleep(0)
    return half * 2


def sleeps_afterwards(compile_: Compile) -> list[Any]:
    result = compile_(lambda v: (v + 1) * 2)(x)
    time.sleep(0)
    return [result]


class Settings:
    def __init__(self, **content: float) -> None:
        self._content = content

    def __getattr__(self, name: str) -> float:
        return object.__getattribute__(self, "_content")[name]


def reads_settings(v: torch.Tensor, settings: Any) -> torch.Tensor:
    return (v + 1) * settings.rate


def asks_for_the_size_of_what_is_made(v: torch.Tensor) -> torch.Tensor:
    half = v + 1
    return half * sys.getsizeof(half)


def asks_between(compile_: Compile) -> list[Any]:
    half = compile_(lambda v: v + 1)(x)
    return [compile_(lambda v, size: v * size)(half, sys.getsizeof(half))]


def opens_a_file(v: torch.Tensor) -> torch.Tensor:
    half = v + 1
    open("/dev/null").close()  # noqa: PTH123
    return half * 2


def opens_before(compile_: Compile) -> list[Any]:
    open("/dev/null").close()  # noqa: PTH123
    return [compile_(lambda v: (v + 1) * 2)(x)]


def asks_for_the_threads(v: torch.Tensor) -> torch.Tensor:
    half = v + 1
    return half * torch.get_num_threads()


def asks_before(compile_: Compile) -> list[Any]:
    return [compile_(lambda v, number: (v + 1) * number)(x, torch.get_num_threads())]


MODEL = nn.Linear(4, 4)


def copies_a_module(v: torch.Tensor) -> torch.Tensor:
    half = v + 1
    return copy.deepcopy(MODEL)(half)


def copies_before(compile_: Compile) -> list[Any]:
    return [compile_(lambda v, model: model(v + 1))(x, copy.deepcopy(MODEL))]


def asserts_values(v: torch.Tensor) -> torch.Tensor:
    assert v.sum() > 0, v
    return v * 2


def asserts_sizes(v: torch.Tensor) -> torch.Tensor:
    assert v.shape[0] > 0
    return v * 2


def asserts_in_the_graph(v: torch.Tensor) -> torch.Tensor:
    torch._assert_async(v.sum() > 0, "positive")
    return v * 2


def branches_on_values(v: torch.Tensor) -> torch.Tensor:
    if v.sum() > 0:
        return v + 1
    return v - 1


def chooses(v: torch.Tensor) -> torch.Tensor:
    return torch.where(v.sum() > 0, v + 1, v - 1)


def branches_on_two_values(v: torch.Tensor) -> torch.Tensor:
    if v.sum() > 0 and not (v > 9).any():
        return v + 1
    return v - 1


def chooses_by_two_values(v: torch.Tensor) -> torch.Tensor:
    return torch.where((v.sum() > 0) & (torch.logical_not((v > 9).any())), v + 1, v - 1)


def branches_or_keeps(v: torch.Tensor) -> torch.Tensor:
    half = v / 2
    if half.max() > 0.1:
        half = half.exp()
    return half


def takes_one_side_or_copies(v: torch.Tensor) -> Any:
    half = v / 2
    return torch.cond(half.max() > 0.1, lambda a: a.exp(), lambda a: a.clone(), (half,))


def halves_or_keeps(v: torch.Tensor) -> torch.Tensor:
    largest = v.max().item()
    if largest > 0.1:
        return v / 2
    return v[:]


def halves_or_copies_in_the_graph(v: torch.Tensor) -> Any:
    return torch.cond(v.max() > 0.1, lambda a: a / 2, lambda a: a[:].clone(), (v,))


def takes_one_side(v: torch.Tensor) -> Any:
    return torch.cond(v.sum() > 0, lambda a: a + 1, lambda a: a - 1, (v,))


def logs_an_item(v: torch.Tensor) -> tuple[float, torch.Tensor]:
    return v.sum().item(), v * 2


def logs_a_list(v: torch.Tensor) -> tuple[list[float], torch.Tensor]:
    return v.tolist(), v * 2


def converts_afterwards(convert: Callable[[torch.Tensor], Any], fn: Callable[..., Any]) -> Program:
    def run(compile_: Compile) -> list[Any]:
        shown, result = compile_(fn)(x)
        return [(convert(shown), result)]

    return run


def selects_by_a_mask(v: torch.Tensor) -> torch.Tensor:
    return v[v > 1].sum()


def multiplies_by_a_mask(v: torch.Tensor) -> torch.Tensor:
    return (v * (v > 1)).sum()


def asks_for_a_break(v: torch.Tensor) -> torch.Tensor:
    half = v + 1
    torch._dynamo.graph_break()
    return half * 2


def doubles(v: torch.Tensor) -> torch.Tensor:
    return (v + 1) * 2


def calls_a_c_function(v: torch.Tensor) -> torch.Tensor:
    return v + len(msgspec.json.encode(v.ndim))


@torch.library.custom_op("dynadiag_tests::checksum", mutates_args=())
def checksum(v: torch.Tensor) -> torch.Tensor:
    return torch.tensor(len(msgspec.json.encode(v.ndim)))


@checksum.register_fake
def _(v: torch.Tensor) -> torch.Tensor:
    return v.new_empty((), dtype=torch.int64)


def calls_an_operator(v: torch.Tensor) -> torch.Tensor:
    return v + checksum(v)


def constant() -> int:
    return zlib.crc32(b"always") % 7


def calls_a_constant_function(v: torch.Tensor) -> torch.Tensor:
    return v + constant()


@torch.compiler.assume_constant_result
def marked() -> int:
    return zlib.crc32(b"always") % 7


def calls_a_marked_function(v: torch.Tensor) -> torch.Tensor:
    return v + marked()


LOCK = threading.Lock()


def enters_a_lock(v: torch.Tensor) -> torch.Tensor:
    with LOCK:
        return doubles(v)


def enters_outside(compile_: Compile) -> list[Any]:
    fn = compile_(doubles)
    with LOCK:
        return [fn(x)]


def takes_a_sparse_tensor(v: torch.Tensor) -> torch.Tensor:
    return v.to_dense() * 2


def densifies_before(compile_: Compile) -> list[Any]:
    return [compile_(lambda v: v * 2)(x.to_sparse().to_dense())]


def requires_gradients(v: torch.Tensor) -> torch.Tensor:
    half = v + 1
    half.requires_grad = True
    return half * 2


def requires_before(compile_: Compile) -> list[Any]:
    half = (x + 1).requires_grad_()
    return [compile_(lambda v: v * 2)(half)]


def retains_a_gradient(v: torch.Tensor) -> torch.Tensor:
    half = v * 2
    half.retain_grad()
    return half.sum()


def retains(compile_: Compile) -> list[Any]:
    return [compile_(retains_a_gradient)(x.clone().requires_grad_())]


def retains_outside(compile_: Compile) -> list[Any]:
    half = x.clone().requires_grad_() * 2
    half.retain_grad()
    return [compile_(lambda v: v.sum())(half)]


def resizes(v: torch.Tensor) -> torch.Tensor:
    half = v + 1
    half.resize_(2)
    return half * 2


def allocates(v: torch.Tensor) -> torch.Tensor:
    half = (v + 1)[:2].clone()
    return half * 2


def takes_a_median(v: torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(np.nanmedian(v.numpy())) + v


def takes_torchs_median(v: torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(torch.nanquantile(v, 0.5)) + v


def makes_an_array(v: torch.Tensor) -> torch.Tensor:
    held = v.numpy()
    return torch.from_numpy(np.array([[held[0], held[1]], [held[2], held[3]]])) + v[:2]


def stacks(v: torch.Tensor) -> torch.Tensor:
    return torch.stack([v[:2], v[2:]]) + v[:2]


def draws_from_a_generator(compile_: Compile) -> Any:
    generator = np.random.default_rng(0)
    return [compile_(lambda v: v * generator.normal())(x)]


def draws_before(compile_: Compile) -> Any:
    return [compile_(lambda v, drawn: v * drawn)(x, np.random.default_rng(0).normal())]


def draws_with_numpy(compile_: Compile) -> Any:
    """`rot90` needs a number of Python's."""

    def turned(v: torch.Tensor) -> torch.Tensor:
        turns = np.random.randint(1, 2)
        return torch.rot90(v, int(turns)) + 1

    return [compile_(turned)(torch.ones(2, 3))]


def draws_before_with_numpy(compile_: Compile) -> Any:
    turns = np.random.randint(1, 2)
    return [compile_(lambda v, turns: torch.rot90(v, turns) + 1)(torch.ones(2, 3), int(turns))]


def goes_so_deep(*, outside: bool) -> Program:
    """Goes through as many layers as are drawn."""
    layers = (doubles, doubles, torch.sin)

    def drawn(v: torch.Tensor) -> torch.Tensor:
        depth = random.randint(2, 2)
        for layer in layers[:depth]:
            v = layer(v)
        return v + 1

    def given(v: torch.Tensor, depth: int) -> torch.Tensor:
        for layer in layers[:depth]:
            v = layer(v)
        return v + 1

    return lambda compile_: compile_(given)(x, random.randint(2, 2)) if outside else compile_(drawn)(x)


def copies_a_tensor(v: torch.Tensor) -> torch.Tensor:
    before = copy.deepcopy(v)
    return v.sin() + before


def clones_a_tensor(v: torch.Tensor) -> torch.Tensor:
    before = v.detach().clone()
    return v.sin() + before


def drops_a_layer(compile_: Compile) -> Any:
    """A layer is left out by chance, of which Dynamo traces nothing."""

    def run(v: torch.Tensor) -> torch.Tensor:
        doubled = v * 2
        if random.random() < 0.5:
            return doubled
        return doubled + 1

    random.seed(0)
    return [compile_(run)(x)]


def drops_a_layer_by_a_name(compile_: Compile) -> Any:
    """As in many encoders: the number has a name, and the layers are left out in training only."""
    training = True

    def run(v: torch.Tensor) -> torch.Tensor:
        doubled = v * 2
        chance = random.uniform(0, 1)
        if training and (chance < 0.5):
            return doubled
        return doubled + 1

    random.seed(0)
    return [compile_(run)(x)]


def drops_outside(compile_: Compile) -> Any:
    random.seed(0)
    doubled = compile_(lambda v: v * 2)(x)
    return [doubled if random.random() < 0.5 else doubled + 1]


def with_a_branch(v: torch.Tensor) -> torch.Tensor:
    return v + 1 if v.shape[0] < 6 else v - 1


def takes_multiples(v: torch.Tensor) -> torch.Tensor:
    return v + 1 if v.shape[0] % 4 == 0 else v - 1


def marked_multiples(compile_: Compile) -> Any:
    v = torch.ones(8)
    torch._dynamo.mark_dynamic(v, 0, min=4, max=64)
    try:
        return [compile_(takes_multiples)(v)]
    except Exception:  # noqa: BLE001 - the failed compile is what the advice is about
        return [takes_multiples(v)]


def maybe_marked_multiples(compile_: Compile) -> Any:
    v = torch.ones(8)
    torch._dynamo.maybe_mark_dynamic(v, 0)
    return [compile_(takes_multiples)(v)]


def marked_range(largest: int) -> Program:
    """The uncompiled function where the mark fails."""

    def run(compile_: Compile) -> Any:
        v = torch.ones(4)
        torch._dynamo.mark_dynamic(v, 0, min=2, max=largest)
        try:
            return [compile_(with_a_branch)(v)]
        except Exception:  # noqa: BLE001 - the failed compile is what the advice is about
            return [with_a_branch(v)]

    return run


def marked_size(mark: Callable[[torch.Tensor, int], None]) -> Program:
    def halves(v: torch.Tensor) -> torch.Tensor:
        if v.shape[0] % 2 == 0:
            return v.view(2, -1).sum(0)
        return v

    def run(compile_: Compile) -> Any:
        v = torch.ones(4)
        mark(v, 0)
        return [compile_(halves)(v)]

    return run


def keeps_in_a_hook(*, number: bool) -> Program:
    """A hook of a module that keeps a mean, as a number or as a tensor."""

    def run(compile_: Compile) -> list[Any]:
        kept: dict[str, Any] = {}
        layer = nn.ReLU()

        def keep(_module: nn.Module, _arguments: Any, out: torch.Tensor) -> None:
            if number:
                kept["mean"] = out.mean().item()
            else:
                kept["mean"] = out.mean()

        layer.register_forward_hook(keep)
        return [compile_(layer)(x), float(kept["mean"])]

    return run


def in_a_transform(energy: Callable[..., Any], **options: Any) -> Program:
    """The gradient, uncompiled where compiling fails."""

    def run(compile_: Compile) -> Any:
        try:
            return [compile_(lambda v: torch.func.grad(energy)(v), **options)(x)]
        except Exception:  # noqa: BLE001 - the failed compile is what the advice is about
            return [torch.func.grad(energy)(x)]

    return run


def breaks_half_way(v: torch.Tensor) -> torch.Tensor:
    total = (v**2).sum()
    torch._dynamo.graph_break()
    return total


async def waits(v: torch.Tensor) -> torch.Tensor:
    half = doubles(v)
    await asyncio.sleep(0)
    return half


def a_coroutine(compile_: Compile) -> Any:
    """The coroutine runs uncompiled where its compile fails."""
    try:
        return [asyncio.run(compile_(waits)(x))]
    except Exception:  # noqa: BLE001 - the failed compile is what the advice is about
        return [asyncio.run(waits(x))]


def calls_compiled(compile_: Compile) -> Any:
    async def wait(fn: Callable[..., Any]) -> Any:
        half = fn(x)
        await asyncio.sleep(0)
        return half

    return [asyncio.run(wait(compile_(doubles)))]


def power(v: torch.Tensor, n: int) -> torch.Tensor:
    return v ** (n + 2)


def loops_with_a_break(v: torch.Tensor) -> torch.Tensor:
    for n in range(3):
        torch._dynamo.graph_break()
        v = power(v, n)
    return v


def loops_without_one(v: torch.Tensor) -> torch.Tensor:
    for n in range(3):
        v = power(v, n)
    return v


def nested(layout: torch.layout) -> Program:
    """A function of a nested tensor."""

    def run(compile_: Compile) -> list[Any]:
        made = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=layout)
        return list(compile_(lambda v: v * 2)(made).unbind())

    return run


SEEN: list[Any] = []


def appends_in_a_branch(v: torch.Tensor) -> Any:
    def positive(a: torch.Tensor) -> torch.Tensor:
        SEEN.append(1)
        return a + 1

    return torch.cond(v.sum() > 0, positive, lambda a: a - 1, (v,))


def broken(fn: Callable[[torch.Tensor], Any]) -> Program:
    """A program that torch refuses, with what it would return."""

    def run(compile_: Compile) -> list[Any]:
        try:
            return [compile_(fn)(x)]
        except Exception:  # noqa: BLE001 - the failed compile is what the advice is about
            return [x + 1]

    return run


@torch.library.custom_op("dynadiag_tests::twice", mutates_args=())
def twice(v: torch.Tensor) -> torch.Tensor:
    return v * 2


@twice.register_fake
def _(v: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(v)


@torch.library.custom_op("dynadiag_tests::thrice", mutates_args=())
def thrice(v: torch.Tensor) -> torch.Tensor:
    return v * 3


@thrice.register_fake
def _(v: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(v)


thrice.register_autograd(lambda _context, grad: grad * 3)


@torch.library.custom_op("dynadiag_tests::unknown_shape", mutates_args=())
def unknown_shape(v: torch.Tensor) -> torch.Tensor:
    return v * 2


SCHEDULE = np.linspace(0.0, 1.0, 8)


def picks_of(held: Any) -> Program:
    """A program that picks items of what it holds by a number that changes."""

    def run(compile_: Compile) -> list[torch.Tensor]:
        fn = compile_(lambda v, step: v * held[step], dynamic=True)
        return [fn(x, step) for step in (3, 4, 5)]

    return run


def applies(operator: Callable[[torch.Tensor], torch.Tensor]) -> Program:
    """A program that calls an operator in a graph."""

    def run(compile_: Compile) -> list[Any]:
        try:
            return [compile_(lambda v: operator(v) + 1)(x)]
        except Exception:  # noqa: BLE001 - the failed compile is what the advice is about
            return [operator(x) + 1]

    return run


def rounds_by(floor: Callable[[float], Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda v: v[: int(round(floor(0.5 * v.shape[0])))]  # noqa: RUF046 - NumPy's is no int


def tuned(operator: Callable[[torch.Tensor], torch.Tensor], factor: int) -> Program:
    """A program that needs the gradient of an operator."""

    def run(_compile: Compile) -> list[Any]:
        v = torch.ones(4, requires_grad=True)
        fn = torch.compile(lambda a: operator(a).sum(), backend="aot_eager")
        try:
            fn(v).backward()
        except Exception:  # noqa: BLE001 - the failed compile is what the advice is about
            return [torch.ones(4)]
        assert v.grad is not None
        return [v.grad / factor]

    return run


def calls_backward(weight: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    loss = (weight * v).square().sum()
    loss.backward()
    return loss.detach()


def trains(step: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Program:
    def run(compile_: Compile) -> list[Any]:
        weight = torch.ones(4, requires_grad=True)
        return [compile_(step)(weight, x), weight.grad]

    return run


def trains_outside(compile_: Compile) -> list[Any]:
    weight = torch.ones(4, requires_grad=True)
    loss = compile_(lambda weight, v: (weight * v).square().sum())(weight, x)
    loss.backward()
    return [loss.detach(), weight.grad]


def no_luck(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
    raise RuntimeError("no luck")


def with_backend(backend: Any) -> Program:
    def run(_compile: Compile) -> list[Any]:
        try:
            return [torch.compile(doubles, backend=backend)(x)]
        except Exception:  # noqa: BLE001 - the failed compile is what the advice is about
            return [doubles(x)]

    return run


def compiled_with(word: str, *, found: bool = False) -> Program:
    """Write a program whose C++ compiler needs one more file. ``found`` says whether the compiler finds it."""

    def run(_compile: Compile) -> list[Any]:
        pick_vec_isa()  # it is asked once in a process, by compiling
        with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            script, header, library = (Path(folder, file) for file in ("g++", "lent.h", "liblent.a"))
            script.write_text(f'#!/bin/sh\ncase "$*" in *-shared*) set -- "$@" {word};; esac\nexec g++ "$@"\n')
            script.chmod(0o700)
            if found:
                header.touch()
                library.write_text("!<arch>\n")
                patch.setenv("CPATH", folder)
                patch.setenv("LIBRARY_PATH", folder)
            uncached = {"force_disable_caches": True, "cpp_cache_precompile_headers": False}
            with inductor_config.patch({"cpp.cxx": (str(script),), **uncached}):
                try:
                    return [torch.compile(doubles)(x)]
                except Exception:  # noqa: BLE001 - the failed compile is what the advice is about
                    return [doubles(x)]

    return run


def differentiates(v: torch.Tensor) -> torch.Tensor:
    (slope,) = torch.autograd.grad((v**3).sum(), v, retain_graph=True)
    return (slope * v).square().sum()


def gradient_of(fn: Callable[[torch.Tensor], torch.Tensor]) -> Program:
    def run(compile_: Compile) -> Any:
        v = torch.ones(4, requires_grad=True)
        compile_(fn)(v).backward()
        return v.grad

    return run


def norm_kept_by_hook(compile_: Compile) -> list[Any]:
    norms: list[float] = []

    def forward(v: torch.Tensor) -> torch.Tensor:
        hidden = v * 2
        hidden.register_hook(lambda grad: norms.append(grad.norm().item()))
        return (hidden * 3).sum()

    compile_(forward)(torch.ones(4, requires_grad=True)).backward()
    return norms


def norm_kept_between(compile_: Compile) -> list[Any]:
    norms: list[float] = []
    hidden = compile_(lambda v: v * 2)(torch.ones(4, requires_grad=True))
    hidden.register_hook(lambda grad: norms.append(grad.norm().item()))
    compile_(lambda h: (h * 3).sum())(hidden).backward()
    return norms


class Experts(nn.Module):
    """Rows go to experts: ``loop`` is over the numbers of those that were hit ("hit", "number"), or over all."""

    def __init__(self, loop: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.loop, self.experts = loop, nn.ModuleList(nn.Linear(4, 4).requires_grad_(False) for _ in range(3))

    def forward(self, v: torch.Tensor, chosen: torch.Tensor) -> Any:
        out = v * 0
        if self.loop == "hit":
            hit = chosen.unique()
            for index in hit:
                out = out + v * (chosen == index)[:, None]
        elif self.loop == "all":
            for index in range(3):
                out = out + v * (chosen == index)[:, None]
        elif self.loop == "picked":
            for index in chosen:
                out = out + self.experts[index](v) * (chosen == index)[:, None]
        else:
            for number, expert in enumerate(self.experts):
                out = out + expert(v) * (chosen == number)[:, None]
        return out


def routes(loop: str) -> Program:
    chosen = torch.tensor([0, 2])
    return lambda compile_: compile_(Experts(loop))(torch.ones(2, 4), chosen)


def lists_what_was_met(v: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    met = classes.unique()
    return torch.stack([v * (classes == each).sum() for each in met])


def lists_all_that_may_be_met(v: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    return torch.stack([v * (classes == each).sum() for each in range(3)])


def picks_a_row(*, reshaped: bool) -> Program:
    def picks(v: torch.Tensor) -> torch.Tensor:
        v, best = v.clone(), v.sum(1).argmax()
        if reshaped:
            v[best.reshape(1)] = 0
            return v[best.reshape(1)][0] + v[:, best.reshape(1)].sum()
        v[best] = 0
        return v[best] + v[:, best].sum()

    return lambda compile_: compile_(picks)(torch.arange(9.0).reshape(3, 3))


def batches() -> Iterator[torch.Tensor]:
    while True:
        yield torch.ones(4)


def takes_a_batch(compile_: Compile) -> Any:
    source = batches()
    return compile_(lambda: next(source) * 2)()


# Recompiles.


def writes_tokens(cache: str) -> Program:
    def program(compile_: Compile) -> Any:
        import transformers

        torch.manual_seed(0)
        config = transformers.GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=16, n_positions=32)
        model, ids = transformers.GPT2LMHeadModel(config).eval(), torch.ones(1, 4, dtype=torch.long)
        size = {"max_cache_len": 16} if cache == "StaticCache" else {}
        kept = getattr(transformers, cache)(config=config, **size)
        step = compile_(model)
        with torch.no_grad():
            model(ids, past_key_values=kept)
            return [step(ids[:, :1], past_key_values=kept).logits for _ in range(3)]

    return program


def times(v: torch.Tensor, n: Any) -> torch.Tensor:
    return v * n


def with_a_gradient(v: torch.Tensor) -> torch.Tensor:
    return v + 1


def with_state(*states: Callable[[], Any]) -> Program:
    """A program that calls the same function in states of the process."""

    def run(compile_: Compile) -> list[Any]:
        fn, results = compile_(with_a_gradient), []
        for state in states:
            with state():
                results.append(fn(y))
        return results

    return run


@contextmanager
def setting(read: Callable[[], Any], write: Callable[[Any], Any], value: Any) -> Iterator[None]:
    """A setting of torch from here to the end of the program; the test takes it back."""
    RESTORE.append(functools.partial(write, read()))
    write(value)
    yield


RESTORE: list[Callable[[], Any]] = []


@contextmanager
def plain() -> Iterator[None]:
    yield


class Mode(TorchFunctionMode):
    def __torch_function__(self, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return fn(*args, **(kwargs or {}))


def threads(number_of: int) -> Any:
    return setting(torch.get_num_threads, torch.set_num_threads, number_of)


def dtype_of_defaults(dtype: torch.dtype) -> Any:
    return setting(torch.get_default_dtype, torch.set_default_dtype, dtype)


def deterministic(on: bool) -> Any:
    return setting(torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, on)


def precision(value: str) -> Any:
    return setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, value)


def device_of_defaults(device: str) -> Any:
    return setting(lambda: None, torch.set_default_device, device)


def transformed(everywhere: bool) -> Program:
    """A function that is called by itself and in `torch.vmap`. ``everywhere`` compiles the call of `vmap` too."""

    def run(compile_: Compile) -> list[Any]:
        fn = compile_(doubles)
        mapped = compile_(torch.vmap(doubles)) if everywhere else torch.vmap(fn)
        return [fn(y), mapped(torch.ones(2, 4))]

    return run


def jvp(first: Callable[[], Any], second: Callable[[], Any]) -> Program:
    """A compiled function that uses forward-mode AD, called at two levels of it. torch refuses the second."""

    def run(compile_: Compile) -> list[Any]:
        fn, results = compile_(lambda v: torch.func.jvp(torch.sin, (v,), (v,))[0]), []
        for level in (first, second):
            with level(), suppress(RuntimeError), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fn(x)
                results.append(1)
        return [1]

    return run


def hooks() -> Any:
    """Hooks on saved tensors that torch puts into the graph: graph modules."""
    same = torch.fx.symbolic_trace(lambda v: v * 1)
    return torch.autograd.graph.saved_tensors_hooks(same, same)


HOOKS = hooks()


def with_gradients(on: bool) -> Program:
    def run(compile_: Compile) -> list[Any]:
        fn = compile_(doubles)
        v = torch.ones(4, requires_grad=True)
        return [fn(y), fn(v if on else v.detach()).detach()]

    return run


def inference(made_alike: bool, first: bool = False) -> Program:
    def run(compile_: Compile) -> list[Any]:
        fn = compile_(doubles)
        with torch.no_grad() if made_alike else torch.inference_mode():
            v = torch.ones(4)
        with torch.no_grad():
            return [fn(each) for each in ((v, torch.ones(4)) if first else (torch.ones(4), v))]

    return run


def backends(count: int) -> Program:
    def run(_compile: Compile) -> list[Any]:
        compiled = [torch.compile(doubles, backend=each) for each in ("eager", "aot_eager")[:count]]
        return [compiled[0](x), compiled[-1](x)]

    return run


def switched(modes: tuple[bool, ...]) -> Program:
    def run(compile_: Compile) -> list[Any]:
        module, results = nn.Dropout(0.0), []
        fn = compile_(lambda v: module(v))
        for mode in modes:
            results.append(fn(x) if module.train(mode) else None)
        return results

    return run


def closing(compile_: Compile) -> list[Any]:
    factor = 2

    def inner(v: torch.Tensor) -> torch.Tensor:
        return v * factor

    fn = compile_(lambda v, g: g(v), dynamic=False)
    first = fn(x, inner)
    factor = 3
    return [first, fn(x, inner)]


def a_global(compile_: Compile) -> list[Any]:
    global number
    fn, results = compile_(lambda v: v * number), []
    for number in (2, 3):  # noqa: B007 - a global
        results.append(fn(x))
    return results


def a_global_text(values: tuple[str, ...]) -> Program:
    def run(compile_: Compile) -> list[Any]:
        global name
        fn, results = compile_(lambda v: v * 2 if name else v), []
        for name in values:  # noqa: B007 - a global
            results.append(fn(x))
        return results

    return run


def scheduled(learning_rate: Any, kind: Callable[..., Any] = torch.optim.SGD) -> Program:
    """An optimizer whose step is compiled, with a scheduler's changes."""

    def run(compile_: Compile) -> list[Any]:
        parameter = nn.Parameter(torch.ones(4))
        optimizer = kind([parameter], lr=learning_rate)
        step = compile_(optimizer.step)
        for rate in (0.5, 0.25, 0.125):
            parameter.grad = torch.ones(4)
            group = optimizer.param_groups[0]
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
            step()
        return [parameter.detach()]

    return run


class Holder:
    """An object that is no module."""

    mode = "fast"


class Kind(enum.Enum):
    FIRST = 1
    SECOND = 2


class Scaled(nn.Module):
    def __init__(self, factor: Any) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        return v * self.factor


class Buffered(nn.Module):
    factor: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("factor", torch.tensor(2.0))

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        return v * self.factor


def with_factors(*factors: Any, **options: Any) -> Program:
    def run(compile_: Compile) -> list[Any]:
        module, results = Scaled(factors[0]), []
        fn = compile_(module, **options)
        for module.factor in factors:
            results.append(fn(x))
        return results

    return run


class Holding(nn.Module):
    """Scales by a number of an object that it holds."""

    def __init__(self, factor: Any) -> None:
        super().__init__()
        self.settings = SimpleNamespace(factor=factor)

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        return v * self.settings.factor


def with_held_factors(*factors: Any, **options: Any) -> Program:
    def run(compile_: Compile) -> list[Any]:
        module, results = Holding(factors[0]), []
        fn = compile_(module, **options)
        for module.settings.factor in factors:
            results.append(fn(x))
        return results

    return run


class Written(nn.Module):
    """A cache that is read up to a place, which it keeps or is told."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.arange(8.0))
        self.place = 0

    def read(self, place: int | None) -> torch.Tensor:
        if place is not None:
            return self.kept[:place] * 2
        return self.kept[: self.place] * 2


class Reading(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cache = Written()

    def forward(self, place: int | None = None) -> torch.Tensor:
        return self.cache.read(place) + 1


def with_places(*, given: bool = False, **options: Any) -> Program:
    def run(compile_: Compile) -> list[Any]:
        module, results = Reading(), []
        fn = compile_(module, **options)
        for module.cache.place in (3, 4, 5):
            results.append(fn(module.cache.place) if given else fn())
        return results

    return run


class Doubles(nn.Module):
    """Doubles at each third step, by a number of its own or by what the caller says."""

    def __init__(self) -> None:
        super().__init__()
        self.step = 0

    def forward(self, v: torch.Tensor, now: bool | None = None) -> torch.Tensor:
        if now is None:
            return v * 2 if self.step % 3 == 0 else v + 1
        return v * 2 if now else v + 1


def with_steps(*, outside: bool, **options: Any) -> Program:
    def run(compile_: Compile) -> list[Any]:
        module, results = Doubles(), []
        fn = compile_(module, **options)
        for module.step in (1, 2, 4):
            results.append(fn(x, module.step % 3 == 0) if outside else fn(x))
        return results

    return run


def with_a_buffer(*factors: float) -> Program:
    def run(compile_: Compile) -> list[Any]:
        module, results = Buffered(), []
        fn = compile_(module)
        for factor in factors:
            module.factor.fill_(factor)
            results.append(fn(x))
        return results

    return run


def with_modes(*modes: str) -> Program:
    def run(compile_: Compile) -> list[Any]:
        held, results = Holder(), []
        fn = compile_(lambda v: v * 2 if held.mode else v)
        for held.mode in modes:
            results.append(fn(x))
        return results

    return run


def counts_items(v: torch.Tensor, n: int) -> torch.Tensor:
    return v + len([None] * n)


def adds_a_count(v: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    return v + n


def reduces(v: torch.Tensor, how: str) -> torch.Tensor:
    return v.sum() if how == "sum" else v.mean()


def steps(again: bool) -> Program:
    """A compiled step of an optimizer, which is made anew or used again."""

    def run(compile_: Compile) -> list[Any]:
        parameter = nn.Parameter(torch.ones(4))
        optimizer = torch.optim.SGD([parameter], lr=0.5)
        step = compile_(optimizer.step)
        for _ in range(2):
            parameter.grad = torch.ones(4)
            step()
            if not again:
                optimizer = torch.optim.SGD([parameter], lr=0.5)
                step = compile_(optimizer.step)
        return [parameter.detach()]

    return run


class Cache:
    """It is filled in the first call, as a static cache of keys and values."""

    def __init__(self) -> None:
        self.is_initialized = False
        self.held = torch.zeros(4)

    def add(self, v: torch.Tensor) -> torch.Tensor:
        if not self.is_initialized:
            self.held = torch.zeros(4)
            self.is_initialized = True
        return self.held + v


held: list[torch.Tensor] = []


def keeps(v: torch.Tensor) -> torch.Tensor:
    held.append(v * 2)
    return v + 1


def adds_to_a_list(outside: bool) -> Program:
    def run(compile_: Compile) -> list[Any]:
        held.clear()
        fn = compile_((lambda v: (v * 2, v + 1)) if outside else keeps)
        for v in (x, x + 1):
            found = fn(v)
            if outside:
                held.append(found[0])
        return [*held]

    return run


def fills_a_list(before: bool) -> Program:
    """A program that adds to a list between two calls, or before both."""

    def run(compile_: Compile) -> list[Any]:
        held[:] = [zeros] if before else []
        fn = compile_(lambda v: sum(held, v + 1))
        first = fn(x)
        held[:] = [zeros]
        return [first, fn(x)]

    return run


def extends_a_list(before: bool) -> Program:
    """A program that has one item more in a list at its second call, or at both."""

    def run(compile_: Compile) -> list[Any]:
        held[:] = [zeros] * (1 + before)
        fn = compile_(lambda v: sum(held, v + 1))
        first = fn(x)
        held[:] = [zeros, zeros]
        return [first, fn(x)]

    return run


def ties(before: bool) -> Program:
    """A program that unties the weights of two layers between two calls, or before both."""

    def run(compile_: Compile) -> list[Any]:
        torch.manual_seed(0)
        first, second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        second.weight = first.weight
        own = nn.Parameter(first.weight.detach().clone())
        if before:
            second.weight = own
        fn = compile_(nn.Sequential(first, second))
        found = [fn(x)]
        second.weight = own
        return [*found, fn(x)]

    return run


def parametrized(cached: bool) -> Program:
    """A program that calls a module with a parametrization under `parametrize.cached`, or not."""

    def run(compile_: Compile) -> list[Any]:
        torch.manual_seed(0)
        module = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 4))
        fn, around = compile_(module), torch.nn.utils.parametrize.cached() if cached else contextlib.nullcontext()
        with torch.no_grad(), around:
            return [fn(x), fn(x)]

    return run


def decodes(initialized: bool) -> Program:
    def run(compile_: Compile) -> list[Any]:
        cache = Cache()
        if initialized:
            cache.add(x)
        fn = compile_(lambda cache, v: cache.add(v))
        return [fn(cache, x), fn(cache, x)]

    return run


def adds(v: torch.Tensor, one: int = 1) -> torch.Tensor:
    return v + one


def takes_any(v: torch.Tensor, **kwargs: int) -> torch.Tensor:
    return adds(v, **kwargs)


def with_keywords(*each: dict[str, int]) -> Program:
    def run(compile_: Compile) -> list[Any]:
        fn = compile_(takes_any)
        return [fn(x, **options) for options in each]

    return run


def present(from_the_start: bool) -> Program:
    def run(compile_: Compile) -> list[Any]:
        held: Any = Holder()
        if from_the_start:
            held.scale = 2
        fn = compile_(lambda v: v + 1 if hasattr(held, "scale") else 1 + v)
        first = fn(x)
        held.scale = 2
        return [first, fn(x)]

    return run


class HasScale:
    scale = 2


def own_attribute(from_the_start: bool) -> Program:
    def run(compile_: Compile) -> list[Any]:
        held = HasScale()
        if from_the_start:
            held.scale = 2
        fn = compile_(lambda v: v * held.scale)
        first = fn(x)
        held.scale = 2
        return [first, fn(x)]

    return run


def after_a_break(v: torch.Tensor, n: int) -> torch.Tensor:
    items = [1] * n
    length = zlib.crc32(bytes(len(items))) % 100
    return v * 1.0 + length * 0


def without_a_break(v: torch.Tensor, n: int) -> torch.Tensor:
    return v * 1.0


def shortens(v: torch.Tensor) -> torch.Tensor:
    short = v[1:] + 1
    return short * 2


def shortens_before_a_break(v: torch.Tensor) -> torch.Tensor:
    short = v[1:] + 1
    zlib.crc32(b"a")
    return short * 2


class Keeper:
    def __init__(self, **kept: torch.Tensor) -> None:
        self.kept = kept

    def keep(self, v: torch.Tensor) -> torch.Tensor:
        self.kept["last"] = v
        return v + 1


def keeps_last(**kept: torch.Tensor) -> Program:
    return lambda compile_: calls(Keeper(**kept).keep, (x,), (x,))(compile_)


def partials(around: bool) -> Program:
    def run(compile_: Compile) -> list[Any]:
        made = [functools.partial(times, n=2), nn.ReLU()]
        if around:
            return [compile_(lambda v: made[0](v))(x), compile_(lambda v: made[1](v))(x)]
        return [compile_(each)(x) for each in made]

    return run


def marked_sizes(*sizes: int) -> Program:
    def run(compile_: Compile) -> list[Any]:
        fn, each = compile_(doubles), [torch.ones(size) for size in sizes]
        torch._dynamo.mark_dynamic(each[0], 0)
        return [fn(v) for v in each]

    return run


def unbacked(compile_: Compile) -> list[Any]:
    first = torch.ones(4)
    torch._dynamo.decorators.mark_unbacked(first, 0)
    fn = compile_(doubles)
    return [fn(first), fn(torch.ones(1))]


def sized(*sizes: tuple[int, ...], **options: Any) -> Program:
    return calls(doubles, *((torch.ones(size),) for size in sizes), **options)


def adds_sizes(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.sum() + b


def far(v: torch.Tensor) -> torch.Tensor:
    return v.sum() * 0 if v.shape[0] > 10 else 0 * v.sum()


def pairs(v: torch.Tensor) -> torch.Tensor:
    return v.view(-1, 2).sum() + 1 if v.shape[0] % 2 == 0 else v.sum() + 1


def changes_a_layer(change: Callable[[nn.Linear], object], *, before: bool) -> Program:
    """A program that changes a layer of a module between two calls, or before both."""

    def run(compile_: Compile) -> list[torch.Tensor]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        compiled = compile_(net)
        if before:
            change(net[0])
        else:
            compiled(x)
            change(net[0])
        return [compiled(x).detach()]

    return run


def freezes(layer: nn.Linear) -> None:
    layer.weight.requires_grad_(False)


def takes_the_bias(layer: nn.Linear) -> None:
    layer.bias = None


def keeps_the_output(layer: nn.Module, _: Any, output: torch.Tensor) -> torch.Tensor:
    return output


def removes_a_hook(*, keeps: bool) -> Program:
    def run(compile_: Compile) -> list[torch.Tensor]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        hook, compiled = net[0].register_forward_hook(keeps_the_output), compile_(net)
        first = compiled(x).detach()
        if not keeps:
            hook.remove()
        return [first, compiled(x).detach()]

    return run


class Wrapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, v: torch.Tensor) -> Any:
        return self.linear(v) * 2


def hooks_of_layers(*, of_all: bool) -> Program:
    def run(compile_: Compile) -> list[torch.Tensor]:
        torch.manual_seed(0)
        layers = [Wrapped().requires_grad_(False) for _ in range(2)]
        for layer in layers if of_all else layers[:1]:
            layer.linear.register_forward_hook(keeps_the_output)
        return [compile_(layer)(x) for layer in layers]

    return run


MANY = tuple(range(3, 8))


def values(count: int, lengths: tuple[int, ...]) -> Program:
    stacked = calls(lambda v, items: v + items.sum(0), *((x, torch.ones(n, 4)) for n in lengths), dynamic=True)
    listed = calls(lambda v, items: v + sum(items), *((x, [y] * n) for n in lengths))
    return listed if count else stacked


class Gain(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        return v * self.weight


def gains(**options: Any) -> Program:
    def run(compile_: Compile) -> list[torch.Tensor]:
        fn = compile_(Gain.forward, **options)
        return [fn(Gain(width), torch.ones(2, width)).detach() for width in (4, 8)]

    return run


def weights(**options: Any) -> Program:
    def run(compile_: Compile) -> list[torch.Tensor]:
        fn = compile_(lambda weight: weight / weight.norm(), **options)
        return [fn(torch.nn.Parameter(torch.ones(3, width))).detach() for width in (4, 5, 6)]

    return run


def frees_parameters() -> None:
    config.force_parameter_static_shapes = False


def frees_modules() -> None:
    frees_parameters()
    config.force_nn_module_property_static_shapes = False


class Widened(nn.Module):
    """A module with a layer of torch's of a given width, or with a buffer of it."""

    def __init__(self, width: int, *, layer: bool) -> None:
        super().__init__()
        if layer:
            self.layer = nn.Linear(2, width, bias=False)
            nn.init.ones_(self.layer.weight)
        else:
            self.register_buffer("layer", torch.ones(2, width))

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        return (self.layer(v) if isinstance(self.layer, nn.Linear) else v @ self.layer).sum(1)


def widens(*, layer: bool, **options: Any) -> Program:
    """A program that compiles modules of several widths."""

    def run(compile_: Compile) -> list[torch.Tensor]:
        fn = compile_(Widened.forward, **options)
        return [fn(Widened(width, layer=layer), torch.ones(3, 2)).detach() for width in (4, 5, 6)]

    return run


class ScaledByWidth(Widened):
    """A module that keeps its width as a number, too."""

    def __init__(self, width: int) -> None:
        super().__init__(width, layer=True)
        self.width = width

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        return super().forward(v) / self.width


def scales_widths(compile_: Compile) -> list[torch.Tensor]:
    fn = compile_(ScaledByWidth.forward, dynamic=True)
    return [fn(ScaledByWidth(width), torch.ones(3, 2)).detach() for width in (4, 5, 6)]


def frees_all() -> None:
    frees_modules()
    config.allow_unspec_int_on_nn_module = True


class Replaced(nn.Module):
    """A layer in place of another, with the same result."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        return self.layer(v)


def replaces(*, before: bool) -> Program:
    """A program that puts a layer in the place of another between two calls, or before both."""

    def run(compile_: Compile) -> list[torch.Tensor]:
        module = Replaced(LAYERS[0])
        module.layer = Replaced(LAYERS[0]) if before else module.layer
        fn = compile_(module)
        results = [fn(torch.ones(1, 2)).detach()]
        module.layer = module.layer if before else Replaced(LAYERS[0])
        return [*results, fn(torch.ones(1, 2)).detach()]

    return run


def masks(held: Callable[[int], Any]) -> Program:
    """A function of torch's that is compiled, and given functions that close over a number."""

    def near(window: Any) -> Callable[..., Any]:
        return lambda _b, _h, q, k: q - k <= window

    def run(compile_: Compile) -> list[torch.Tensor]:
        fn = compile_(create_mask)
        return [fn(near(held(window)), 1, 1, 8, 8, "cpu") for window in (2, 3)]

    return run


COUNTED = 1


def counts_and_adds(v: torch.Tensor) -> torch.Tensor:
    global COUNTED
    COUNTED += 1
    return v + COUNTED


def counting(*, outside: bool) -> Program:
    """A program that counts the calls of a function inside of it, or outside."""

    def run(compile_: Compile) -> list[torch.Tensor]:
        global COUNTED
        COUNTED = 1
        if not outside:
            fn = compile_(counts_and_adds)
            return [fn(x) for _ in range(3)]
        fn = compile_(adds, dynamic=True)
        return [fn(x, number) for number in (2, 3, 4)]

    return run


def marking(fn: Callable[..., Any], mark: Callable[..., Any], *each: torch.Tensor, **options: Any) -> Program:
    """A program that marks the first dimension of each argument before its call."""

    def run(compile_: Compile) -> list[Any]:
        compiled, results = compile_(fn, **options), []
        for v in each:
            v = v.clone()
            mark(v, 0)
            results.append(compiled(v))
        return results

    return run


def squares(v: torch.Tensor) -> torch.Tensor:
    return (v @ torch.ones(4, 2)).sum()


def compiles_each_size() -> None:
    RESTORE.append(functools.partial(setattr, config, "automatic_dynamic_shapes", True))
    config.automatic_dynamic_shapes = False


def nests(*, marked: bool) -> Program:
    """Nested tensors with other numbers of parts."""

    def run(compile_: Compile) -> list[Any]:
        compiled = compile_(lambda v: v * 2)
        results = []
        for lengths in ((2, 3), (2, 3, 4)):
            nested_ = torch.nested.nested_tensor([torch.ones(each, 3) for each in lengths], layout=torch.jagged)
            if marked:
                torch._dynamo.mark_dynamic(nested_, 0)
                torch._dynamo.mark_dynamic(nested_._offsets, 0)
            results.append(compiled(nested_).values())
        return results

    return run


def placed(*, again: bool) -> Program:
    """A DTensor that comes sharded, then replicated; ``again``: and is sharded again before the call."""

    def run(compile_: Compile) -> list[Any]:
        with one_rank():
            mesh = init_device_mesh("cpu", (1,))
            compiled, results = compile_(lambda v: v * 2), []
            for placement in (Shard(0), Replicate()):
                tensor = distribute_tensor(x, mesh, [placement])
                results.append(compiled(tensor.redistribute(mesh, [Shard(0)]) if again else tensor).to_local())
            return results

    return run


def with_factors_of_modules(compile_: Compile) -> list[Any]:
    return [compile_(Scaled(factor), dynamic=True)(x) for factor in (2, 3)]


def decides_by_an_address(v: torch.Tensor) -> torch.Tensor:
    if v.data_ptr() % 4 == 0:
        return v + 1
    return v - 1


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, v: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(v)
        return (v > 1).float()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient / (1 + ctx.saved_tensors[0].abs())


class PrintingSpike(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, v: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(v)
        return (v > 1).float()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        print("in the backward")  # noqa: T201 - it is the fault
        return gradient / (1 + ctx.saved_tensors[0].abs())


def spikes(function: Any, *, between: bool = False) -> Program:
    """A function with a gradient of its own; ``between``: between two that are compiled."""

    def run(compile_: Compile) -> list[Any]:
        weight = x.clone().requires_grad_()
        if between:
            half = compile_(lambda v: v * 2)(weight)
            compile_(lambda v: v.sum())(function.apply(half)).backward()
        else:
            compile_(lambda v: function.apply(v * 2).sum())(weight).backward()
        return [weight.grad]

    return run


def asks_in_a_try(v: torch.Tensor) -> torch.Tensor:
    more = v + 1
    try:
        more = more.scale
    except AttributeError:
        more = v + 2
    return more.sum()


def or_else(fn: Callable[..., Any], other: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return fn(*arguments)
    except AttributeError:
        return other(*arguments)


def tries(fn: Callable[..., Any]) -> Program:
    return lambda compile_: or_else(compile_(fn), fn, x)


def drops(*, once: bool) -> Program:
    """The same dropout for two tensors: by the state of the random numbers, or by a mask."""

    def again(v: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        state = torch.get_rng_state()
        half = nn.functional.dropout(v, 0.5)
        torch.set_rng_state(state)
        return half + nn.functional.dropout(w, 0.5)

    def masked(v: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        mask = nn.functional.dropout(torch.ones_like(v), 0.5)
        return v * mask + w * mask

    def run(compile_: Compile) -> Any:
        torch.manual_seed(0)
        return compile_(masked if once else again)(x, y)

    return run


PARTS, SIZES = torch.arange(12.0).view(6, 2), torch.tensor([2, 0, 4])


def splits(*, skips: bool) -> Callable[..., Any]:
    def skipping(v: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        parts, start = [], 0
        for number, size in enumerate(counts.tolist()):
            if size == 0:
                continue
            parts.append(v[start : start + size] * number)
            start += size
        return torch.cat(parts)

    def passing(v: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        parts, start = [], 0
        for number, size in enumerate(counts.tolist()):
            parts.append(v[start : start + size] * number)
            start += size
        return torch.cat(parts)

    return skipping if skips else passing


def steps_of(v: torch.Tensor) -> Iterator[torch.Tensor]:
    for _ in range(3):
        v = v * 2
        yield v


@contextmanager
def scaled(v: torch.Tensor) -> Iterator[torch.Tensor]:
    yield v * 2


def enters_a_context(v: torch.Tensor) -> torch.Tensor:
    with scaled(v) as large:
        return large + 1


def adds_under_a_context(compile_: Compile) -> list[Any]:
    with compile_(scaled)(x) as large:
        return [large + 1]


class Store:
    def __init__(self, count: int) -> None:
        self.entries = {f"k{number}": x for number in range(count)}

    def put(self, key: str, v: torch.Tensor) -> None:
        self.entries[key] = v


def fills_stores(*, outside: bool) -> Program:
    """An entry is put into a store; each has another number of entries."""

    def inside(v: torch.Tensor, store: Store) -> None:
        store.put("new", v * 2)

    def run(compile_: Compile) -> list[Any]:
        stores = [Store(count) for count in (1, 2, 3, 4)]
        compiled = compile_((lambda v: v * 2) if outside else inside)
        for store in stores:
            if outside:
                store.put("new", compiled(x))
            else:
                compiled(x, store)
        return [store.entries["new"] for store in stores]

    return run


class Grown(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block()])

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            v = block(v)
        return v


def adds_modules(*, whole: bool) -> Program:
    """A list of modules to which one is added; compiled as a whole, or each module by itself."""

    def run(compile_: Compile) -> list[Any]:
        torch.manual_seed(0)
        model = Grown().requires_grad_(False)
        called: Callable[..., Any] = compile_(model) if whole else model
        results = []
        for _ in range(2):
            for block in () if whole else model.blocks:
                block.forward = compile_(block.forward)
            results.append(called(torch.ones(2, 4)))
            model.blocks.append(Block().requires_grad_(False))
        return results

    return run


WEIGHT = nn.Parameter(torch.ones(4))


def normed(v: torch.Tensor) -> torch.Tensor:
    return v / v.norm()


def walks_trees(*, whole: bool) -> Program:
    """A sum over nested lists; compiled as a whole, or one step of it."""

    def run(compile_: Compile) -> list[Any]:
        def joins(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return (a + b) * 2

        join = joins if whole else compile_(joins)

        def total(node: Any) -> torch.Tensor:
            return node if isinstance(node, torch.Tensor) else join(total(node[0]), total(node[1]))

        call = compile_(total) if whole else total
        return [call([x, y]), call([[x, y], y])]

    return run


def shares_no_symbols() -> None:
    RESTORE.append(functools.partial(setattr, shapes_config, "use_duck_shape", shapes_config.use_duck_shape))
    shapes_config.use_duck_shape = False


def adds_both(marked: bool) -> Program:
    def run(compile_: Compile) -> list[torch.Tensor]:
        fn, results = compile_(adds_sizes, dynamic=True), []
        for a, b in ((x, y), (zeros, torch.ones(5))):
            a, b = a.clone(), b.clone()
            for each in (a, b) if marked else ():
                torch._dynamo.mark_dynamic(each, 0)
            results.append(fn(a, b))
        return results

    return run


def short_batches(marked: bool) -> Program:
    """A program with two arguments whose last batch has one row."""

    def run(compile_: Compile) -> list[torch.Tensor]:
        fn, results = compile_(lambda v, w: (v * w).sum(), dynamic=True), []
        for rows in (4, 1):
            pair = torch.ones(rows, 2), torch.ones(rows, 2)
            for each in pair if marked else ():
                torch._dynamo.decorators.mark_unbacked(each, 0)
            results.append(fn(*pair))
        return results

    return run


def slices(contiguous: bool) -> Program:
    """A program whose argument is a slice of a wider tensor in every other call."""

    def run(compile_: Compile) -> list[torch.Tensor]:
        fn, results = compile_(doubles, dynamic=True), []
        for width in (4, 5):
            wide = torch.ones(3, width + 2)[:, :width]
            for v in (torch.ones(3, width), wide):
                results.append(fn(v.contiguous() if contiguous else v))
        return results

    return run


class Noisy(nn.Module):
    def __init__(self, rate: Any, *, buffer: bool) -> None:
        super().__init__()
        if buffer:
            self.register_buffer("rate", torch.tensor(rate))
        else:
            self.rate = rate

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        return v.new_empty(2).bernoulli_(1 - self.rate) * 0 + v.sum()


def noise(*, buffer: bool) -> Program:
    def run(compile_: Compile) -> list[torch.Tensor]:
        fn = compile_(Noisy.forward, dynamic=True, backend="eager")  # others compile such a float apart
        return [fn(Noisy(rate, buffer=buffer), x) for rate in (0.25, 0.5)]

    return run


class Growing(nn.Module):
    """A module that keeps a table of the longest argument so far."""

    def __init__(self) -> None:
        super().__init__()
        self.longest = 0
        self.table = torch.zeros(0)

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        if v.shape[0] > self.longest:
            self.longest = v.shape[0]
            self.table = torch.arange(v.shape[0]) * 1.0
        return v + self.table[: v.shape[0]]


def grows(filled: bool) -> Program:
    def run(compile_: Compile) -> list[torch.Tensor]:
        module = Growing()
        if filled:
            module(torch.ones(9))
        fn = compile_(module, dynamic=True)
        return [fn(torch.ones(size)) for size in (5, 5, 5)]

    return run


class Streamed(nn.Module):
    """A module that keeps the end of its input, as a view or as it was at first."""

    def __init__(self, contiguous: bool) -> None:
        super().__init__()
        self.contiguous, self.left = contiguous, torch.zeros(1, 4, 2)

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        whole = torch.cat([self.left, v], dim=-1)
        self.left = whole[..., -2:].contiguous() if self.contiguous else whole[..., -2:]
        return whole.sum(-1)


def streams(contiguous: bool) -> Program:
    def run(compile_: Compile) -> list[torch.Tensor]:
        fn = compile_(Streamed(contiguous))
        return [fn(torch.ones(1, 4, 4)) for _ in range(3)]

    return run


HISTORY: list[torch.Tensor] = []
LAYERS = [nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)]


class Picks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(LAYERS)

    def forward(self, v: torch.Tensor, which: int) -> torch.Tensor:
        return self.layers[which](v)


def picks(outside: bool) -> Program:
    def run(compile_: Compile) -> list[torch.Tensor]:
        module = Picks()
        fn = compile_((lambda v, layer: layer(v)) if outside else module)
        given = LAYERS if outside else range(3)
        return [fn(torch.ones(1, 2), each).detach() for each in given]

    return run


def repeats(outside: bool) -> Program:
    def run(compile_: Compile) -> list[torch.Tensor]:
        fn, results = compile_(doubles if outside else repeated), []
        for number in (2, 3, 4):
            v = x
            for _ in range(number if outside else 0):
                v = fn(v)
            results.append(v if outside else fn(x, number))
        return results

    return run


def repeated(v: torch.Tensor, number: int) -> torch.Tensor:
    for _ in range(number):
        v = doubles(v)
    return v


class Counts:
    """An object of a program's own, with a number."""

    def __init__(self, number: int) -> None:
        self.number = number


def adds_a_number(v: torch.Tensor, counts: Counts) -> torch.Tensor:
    return v + counts.number


def cycles(*, left: bool) -> Program:
    """A program with a compiled optimizer, whose scheduler cycles the momentum. ``left`` leaves it alone."""

    def run(compile_: Compile) -> torch.Tensor:
        weight = torch.ones(2, requires_grad=True)
        weight.grad = torch.zeros(2)
        optimizer = torch.optim.AdamW([weight], lr=torch.tensor(0.1), weight_decay=0.0)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 9, cycle_momentum=not left)
        step = compile_(optimizer.step)
        for _ in range(3):
            step()
            scheduler.step()
        return weight.detach()  # the gradient is 0

    return run


def decays(**options: Any) -> Program:
    """A program with a compiled optimizer whose weight decay changes."""

    def run(compile_: Compile) -> torch.Tensor:
        weight = torch.ones(2, requires_grad=True)
        weight.grad = torch.zeros(2)
        optimizer = torch.optim.AdamW([weight], lr=torch.tensor(0.1))
        step = compile_(optimizer.step, **options)
        for optimizer.param_groups[0]["weight_decay"] in (0.25, 0.125):
            step()
        return weight.detach()

    return run


class Pairs(nn.Module):
    """Keeps the keys and values of all calls, or of the longest sequence."""

    def __init__(self, *, whole: bool) -> None:
        super().__init__()
        self.whole = whole
        self.cache: Any = (torch.zeros(2, 9), torch.zeros(2, 9)) if whole else (torch.zeros(2, 2), torch.zeros(2, 2))

    def forward(self, v: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        if self.whole:
            for held in self.cache:
                held.index_copy_(1, place, v)
        else:
            self.cache = tuple(torch.cat([held, v], 1) for held in self.cache)
        return self.cache[0].sum() + self.cache[1].sum()


def decodes_pairs(whole: bool) -> Program:
    def run(compile_: Compile) -> list[torch.Tensor]:
        fn = compile_(Pairs(whole=whole))
        return [fn(torch.ones(2, 2), torch.tensor([n, n + 1])) for n in (2, 4, 6)]

    return run


def losses(outside: bool) -> Program:
    """A program that keeps all losses and takes their mean."""

    def run(compile_: Compile) -> list[torch.Tensor]:
        history: list[torch.Tensor] = []
        if not outside:
            fn = compile_(mean_of)
            return [fn(history, v) for v in (x, y, zeros)]
        one, all_of = compile_(torch.mean), compile_(lambda v: v.mean(), dynamic=True)
        results = []
        for v in (x, y, zeros):
            history.append(one(v))
            results.append(all_of(torch.stack(history)) if len(history) > 1 else history[0])
        return results

    return run


def mean_of(history: list[torch.Tensor], new: torch.Tensor) -> torch.Tensor:
    history.append(new.mean())
    return torch.stack(history).mean()


def scales(v: torch.Tensor, **options: torch.Tensor) -> torch.Tensor:
    factor = options.get("factor")
    return v if factor is None else v * factor


def with_factor(always: bool) -> Program:
    def run(compile_: Compile) -> list[torch.Tensor]:
        fn = compile_(scales)
        return [fn(x, factor=y), fn(x, factor=torch.ones(4)) if always else fn(x)]

    return run


ENTRIES = {1.5: torch.ones(4), 2.5: torch.zeros(4)}


class Twice:
    factor = torch.tensor(2.0)


class Thrice:
    factor = torch.tensor(3.0)


class Keyed(nn.Module):
    def __init__(self, key: float) -> None:
        super().__init__()
        self.key = key

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        return v + ENTRIES[self.key]


def keyed(compile_: Compile) -> list[torch.Tensor]:
    return [compile_(Keyed(key))(x) for key in ENTRIES]


def adds_a_key(state: dict[str, torch.Tensor]) -> torch.Tensor:
    state["loss"] = state["obs"] * 2
    return state["obs"] + 1


def with_a_key(*, before: bool) -> Program:
    def run(compile_: Compile) -> list[torch.Tensor]:
        fn, state = compile_(adds_a_key), {"obs": x, **({"loss": x} if before else {})}
        return [fn(state), fn(state)]

    return run


class Descent(torch.optim.Optimizer):
    """An optimizer that compiles its step for one parameter."""

    def __init__(self, parameter: nn.Parameter, compile_: Compile) -> None:
        super().__init__([parameter], {"lr": 0.5})
        self.state[parameter]["momentum"] = torch.zeros(4)
        self.compiled = compile_(self.descend)

    @torch.no_grad()
    def descend(self, parameter: nn.Parameter) -> None:
        momentum = self.state[parameter]["momentum"]
        momentum.mul_(0.5).add_(parameter.grad, alpha=0.5)
        parameter.sub_(momentum)


def with_kept_gradient(*, kept: bool) -> Program:
    def run(compile_: Compile) -> list[torch.Tensor]:
        parameter = nn.Parameter(torch.ones(4))
        optimizer = Descent(parameter, compile_)
        for _ in range(2):
            (parameter * parameter).sum().backward()
            optimizer.compiled(parameter)
            optimizer.zero_grad(set_to_none=not kept)
        return [parameter.detach()]

    return run


def make_a_class() -> type[nn.Module]:
    class Doubler(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("factor", torch.tensor(2.0))

        def forward(self, v: torch.Tensor) -> torch.Tensor:
            return v * self.factor

    return Doubler


def with_classes(*, anew: bool) -> Program:
    def run(compile_: Compile) -> list[torch.Tensor]:
        kinds = [make_a_class(), make_a_class()]
        return [compile_(kinds[number if anew else 0]())(x) for number in range(2)]

    return run


# The name of a program -> the program as it is, and as the advice says.
def loops_on_values(v: torch.Tensor) -> torch.Tensor:
    v = v + 1
    while v.sum() < 30:
        v = v * 2
    return v * 1


def breaks_out_of_a_loop(v: torch.Tensor) -> torch.Tensor:
    v = v + 1
    for _ in range(9):
        if v.sum() >= 30:
            break
        v = v * 2
    return v * 1


def skips_a_pass_of_a_loop(v: torch.Tensor) -> torch.Tensor:
    v = v + 1
    for _ in range(3):
        if v.sum() >= 30:
            continue
        v = v * 2
    return v * 1


def loops_outside(compile_: Compile) -> Any:
    doubled, v = compile_(lambda v: v * 2), x + 1
    while v.sum() < 30:
        v = doubled(v)
    return [v * 1]


def loops_in_the_graph(v: torch.Tensor) -> Any:
    return torch.while_loop(lambda a: a.sum() < 30, lambda a: (a * 2,), (v + 1,))[0]


def takes_the_time(compile_: Compile) -> Any:
    def run(v: torch.Tensor) -> tuple[torch.Tensor, float]:
        half, begun = v + 1, time.perf_counter()
        return half * 2, time.perf_counter() - begun

    return compile_(run)(x)[0]


def takes_the_time_around(compile_: Compile) -> Any:
    compiled, begun = compile_(lambda v: (v + 1) * 2), time.perf_counter()
    result = compiled(x)
    assert time.perf_counter() >= begun
    return result


LOADER = DataLoader(TensorDataset(torch.arange(12.0).reshape(3, 4)), batch_size=1)


def loops_over_a_bar(v: torch.Tensor) -> torch.Tensor:
    for step in tqdm(range(3), disable=True):
        v = v + step
    return v * 2


def numbers_batches(v: torch.Tensor) -> torch.Tensor:
    total = v[None] * 0
    for number, (batch,) in enumerate(LOADER):
        total = total + number * batch
    return total


def numbers_batches_outside(compile_: Compile) -> Any:
    add = compile_(lambda total, number, batch: total + number * batch, dynamic=True)
    total = x[None] * 0
    for number, (batch,) in enumerate(LOADER):
        total = add(total, torch.tensor(number), batch)
    return [total]


def loops_over_a_range(v: torch.Tensor) -> torch.Tensor:
    for step in range(3):
        v = v + step
    return v * 2


class NamedLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        for number in range(4):
            setattr(self, f"layer{number}", nn.ReLU())

    def forward(self, v: torch.Tensor, number: int) -> Any:
        return getattr(self, f"layer{number}")(v * 2)


def sorts(key: Callable[[torch.Tensor], Any], *, before: bool) -> Program:
    """A program that concatenates tensors in an order, which is known before the call or computed in it."""
    given = [torch.ones(5), torch.zeros(3)]

    def run(compile_: Compile) -> Any:
        in_order = compile_(lambda parts: torch.cat(parts if before else sorted(parts, key=key)) * 2, dynamic=True)
        return [in_order(sorted(given, key=key) if before else given)]

    return run


def names_a_layer(**options: Any) -> Program:
    def run(compile_: Compile) -> Any:
        return [compile_(NamedLayers(), **options)(x, number) for number in (2, 3)]

    return run


def names_it_outside(compile_: Compile) -> Any:
    model, compiled = NamedLayers(), compile_(lambda layer, v: layer(v * 2))
    return [compiled(getattr(model, f"layer{number}"), x) for number in (2, 3)]


def draws_with_a_generator(compile_: Compile) -> Any:
    drawn = torch.Generator().manual_seed(0)
    return compile_(lambda v, generator: v * torch.rand(v.shape, generator=generator))(x, drawn)


def draws_with_it_before(compile_: Compile) -> Any:
    return compile_(lambda v, drawn: v * drawn)(x, torch.rand(4, generator=torch.Generator().manual_seed(0)))


class Counting(nn.Module):
    def __init__(self, *, counts: bool) -> None:
        super().__init__()
        self.counts, self.called = counts, 0

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        if self.counts:
            self.called += 1
        return v.sin() * 2


def counts_in_a_checkpoint(*, inside: bool) -> Program:
    def run(compile_: Compile) -> Any:
        block = Counting(counts=inside)
        result = compile_(lambda v: checkpoint(block, v, use_reentrant=False) + 1)(x.clone().requires_grad_())
        block.called += not inside
        return result.detach(), block.called

    return run


def warns_with_a_category(v: torch.Tensor) -> torch.Tensor:
    half = v + 1
    warnings.warn("half way", DeprecationWarning)  # noqa: B028 - a level would be a keyword
    return half * 2


def steps_an_optimizer(*, outside: bool, times: int | None = None) -> Program:
    def run(compile_: Compile) -> Any:
        layer = nn.Linear(4, 1, bias=False)
        nn.init.ones_(layer.weight)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

        def step(v: torch.Tensor) -> torch.Tensor:
            loss = layer(v).sum()
            if not outside and times is None:
                optimizer.zero_grad()
                loss = loss * 2
            for _ in range(0 if outside else times or 0):
                optimizer.zero_grad()
                loss = loss * 2
            return loss * 1

        result = compile_(step)(x)
        if outside:
            optimizer.zero_grad()
            result = result * 2
        return result.detach()

    return run


def pads(v: torch.Tensor, length: int) -> torch.Tensor:
    return v * (torch.arange(length) < 3)


class Indexed(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def forward(self, v: torch.Tensor, kept: list[torch.Tensor]) -> torch.Tensor:
        return v * 2 + picked(kept, self.number)


class Named(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.name = f"layer{number}"

    def forward(self, v: torch.Tensor, _kept: list[torch.Tensor]) -> torch.Tensor:
        return v * 2 if self.name.endswith("3") else v + 1


def picked(kept: list[torch.Tensor], number: int) -> torch.Tensor:
    return kept[number]


def layers_with_an_index(*, together: bool, kind: type[nn.Module] = Indexed) -> Program:
    def run(compile_: Compile) -> Any:
        layers, kept = [kind(number) for number in (2, 3)], [x, y, zeros, x + y]
        if together:
            return compile_(lambda v: layers[1](layers[0](v, kept), kept))(x)
        compiled = [compile_(layer) for layer in layers]
        return compiled[1](compiled[0](x, kept), kept)

    return run


class Activated(nn.Module):
    def __init__(self, act: nn.Module | None) -> None:
        super().__init__()
        self.act = act

    def scale(self, v: torch.Tensor) -> torch.Tensor:
        return v * 2

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        scaled = self.scale(v)
        return scaled if self.act is None else self.act(scaled)


class Halved(Activated):
    def scale(self, v: torch.Tensor) -> torch.Tensor:
        return v / 2


def layers_that_differ(*kinds: type[Activated], acts: list[nn.Module | None], together: bool) -> Program:
    def run(compile_: Compile) -> Any:
        layers = [kind(act) for kind, act in zip(kinds, acts, strict=True)]
        if together:
            return compile_(lambda v: layers[1](layers[0](v)))(x)
        compiled = [compile_(layer) for layer in layers]
        return compiled[1](compiled[0](x))

    return run


def converts(*, before: bool) -> Program:
    def run(compile_: Compile) -> Any:
        layer = Weighted()
        compiled = compile_(layer)
        if before:
            layer.double()
        first = compiled(x)
        layer.double()
        return first.double(), compiled(x)

    return run


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        return v * self.weight.detach()


def slices_with_offsets(*, copied: bool) -> Program:
    def run(compile_: Compile) -> Any:
        compiled, whole = compile_(lambda v: v.view(-1) * 2, dynamic=True), torch.arange(12.0)
        each = (whole[5:9], whole[:4])
        return [compiled(part.clone() if copied else part) for part in each]

    return run


class OwnDropout(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("p", torch.tensor(0.0))

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        return torch.where(torch.rand_like(v) < self.p, 0.0, v / (1 - self.p))


def drops_more(*, own: bool) -> Program:
    """Dropout with a rate that grows; the rates are so small that nothing is dropped."""

    def run(compile_: Compile) -> Any:
        net = nn.Sequential(OwnDropout() if own else nn.Dropout(0.0), nn.ReLU())
        compiled, results = compile_(lambda v: net(v * 2)), []
        for rate in (1e-9, 2e-9, 3e-9):
            net[0].p = torch.tensor(rate) if own else rate
            results.append(compiled(x))
        return results

    return run


PROGRAMS: dict[str, tuple[Program, Program]] = {
    "prints_a_text": (
        printing(lambda _: "half way"),
        configured(printing(lambda _: "half way"), adds_print),
    ),
    "prints_a_tensor": (printing(lambda v: v), configured(printing(lambda v: v), adds_print)),
    "prints_numbers": (calls(prints_numbers, (x,)), configured(calls(prints_numbers, (x,)), adds_print)),
    "prints_a_size": (calls(prints_a_size, (x,)), configured(calls(prints_a_size_as_text, (x,)), adds_print)),
    "prints_with_a_keyword": (
        printing(lambda _: "half way", end="!\n"),
        configured(printing(lambda _: "half way!"), adds_print),
    ),
    "prints_a_list": (calls(prints_a_list, (x,)), configured(calls(prints_a_list_as_text, (x,)), adds_print)),
    "prints_in_a_helper": (shown(calls(lambda v: shows_its_mean(v + 1) - 1, (x,))), shown(prints_a_mean_afterwards)),
    "warns_in_a_helper": (
        calls(lambda v: warns_of_its_mean(v + 1) - 1, (x,)),
        configured(
            calls(lambda v: warns_of_its_mean(v + 1) - 1, (x,)),
            lambda: config.ignore_logging_functions.add(warnings.warn),
        ),
    ),
    "prints_a_dict": (calls(prints_a_dict, (x,)), prints_afterwards),
    "warns": (
        calls(warns, (x,)),
        configured(calls(warns, (x,)), lambda: config.reorderable_logging_functions.add(warnings.warn)),
    ),
    "warns_with_a_keyword": (
        calls(warns_with_a_keyword, (x,)),
        configured(calls(warns_with_a_keyword, (x,)), lambda: config.ignore_logging_functions.add(warnings.warn)),
    ),
    "calls_a_disabled_function": (calls(calls_a_disabled_function, (x,)), calls_it_afterwards),
    "splits_by_a_list": (
        calls(splits_by_a_list, (x, torch.tensor([1, 3]))),
        configured(calls(splits_by_a_list, (x, torch.tensor([1, 3]))), captures),
    ),
    "asks_a_logger": (calls(asks_a_logger, (x,)), calls(takes_the_answer, (x, False))),
    "logs": (
        calls(logs, (x,)),
        configured(calls(logs, (x,)), lambda: config.ignore_logging_functions.add(logging.Logger.warning)),
    ),
    "hooked_module": (lambda c: backward(c(Hooked())), hooked_forward_alone),
    "keeps_a_mean_of_items": (keeps_a_mean(inside=True), keeps_a_mean(inside=False)),
    "groups_by_items": (
        calls(groups_by_items, (x, torch.tensor([0, 1, 0, 1]))),
        calls(groups_by_index, (x, torch.tensor([0, 1, 0, 1]))),
    ),
    "sorts_by_items": (calls(sorts_by_items, (x,)), calls(sorts_by_torch, (x,))),
    "sorts_a_list": (calls(sorts_a_list, (x,)), calls(sorts_by_torch, (x,))),
    "takes_an_item": (
        calls(takes_an_item, (x,)),
        configured(calls(takes_an_item, (x,)), lambda: setattr(config, "capture_scalar_outputs", True)),
    ),
    "sizes_by_an_item": (
        calls(sizes_by_an_item, (x,)),
        configured(calls(sizes_by_an_item, (x,)), lambda: setattr(config, "capture_scalar_outputs", True)),
    ),
    "sizes_by_an_argument": (calls(sizes_by_an_item, (x,)), sized_before),
    "prints_in_a_checkpoint": (
        checkpointed(keeps=False, inside=True),
        checkpointed(keeps=False, inside=False),
    ),
    "keeps_a_value_in_a_checkpoint": (
        checkpointed(keeps=True, inside=True),
        checkpointed(keeps=True, inside=False),
    ),
    "counts_operators": (counts_operators(stance=False), counts_operators(stance=True)),
    "returns_what_it_was_given": (
        returns_what_it_was_given(decides=True),
        returns_what_it_was_given(decides=False),
    ),
    "branches_on_an_item": (calls(branches_on_an_item, (x,)), calls(chooses_by_a_tensor, (x,))),
    "compares_what_it_kept": (calls(compares_what_it_kept, (x,)), calls(compares_kept_tensors, (x,))),
    "branches_on_a_size": (
        calls(branches_on_a_size, (x, torch.tensor([1, 3]))),
        configured(calls(compares_beside_a_size, (x, torch.tensor([1, 3]))), captures),
    ),
    "shows_what_it_compared": (calls(shows_what_it_compared, (x,)), shows_afterwards),
    "branches_on_a_captured_item": (
        configured(calls(branches_on_an_item, (x,)), captures),
        configured(calls(chooses_by_a_tensor, (x,)), captures),
    ),
    "must_branch_on_an_item": (
        whole(branches_on_an_item, branches_on_an_item),
        whole(chooses_by_a_tensor, chooses_by_a_tensor),
    ),
    "takes_one_side_by_an_item": (calls(branches_on_an_item, (x,)), calls(takes_one_side_by_a_tensor, (x,))),
    "branches_as_always": (
        configured(calls(branches_by_what_is_made, (x,)), captures),
        configured(calls(branches_as_always, (x,)), captures),
    ),
    "must_branch_as_always": (
        whole(branches_by_what_is_made, branches_by_what_is_made),
        whole(branches_as_always, branches_as_always),
    ),
    "clips_in_place": (calls(clips_in_place, (x,), (zeros,)), calls(clips_always, (x,), (zeros,))),
    "keeps_the_largest": (calls(keeps_the_largest, (x,)), calls(keeps_the_largest_always, (x,))),
    "picks_of_a_list": (calls(picks_of_a_list, (x,)), calls(picks_of_a_tensor, (x,))),
    "writes_to_a_transposed": (calls(writes_to_a_transposed, (x,)), calls(takes_the_result, (x,))),
    "calls_a_decorated_method": (calls(calls_a_decorated_method, (x,)), calls(calls_a_plain_method, (x,))),
    "writes_if_any": (calls(writes_if_any, (x,)), calls(writes_always, (x,))),
    "catches_what_it_raises": (calls(catches_what_it_raises, (x,)), calls(chooses_what_it_caught, (x,))),
    "catches_at_its_end": (calls(catches_what_it_raises, (x,)), handles_it_afterwards),
    "raises_on_values": (calls(raises_on_values, (x,)), raises_afterwards),
    "keeps_and_scales": (calls(keeps_and_scales, (x,)), keeps_and_scales_afterwards),
    "keeps_some_items": (calls(keeps_some_items, (x,)), keeps_them_afterwards),
    "leaves_early": (calls(leaves_early, (x,)), leaves_afterwards),
    "raises_on_values_in_the_graph": (calls(raises_on_values, (x,)), calls(asserts_in_place, (x,))),
    "renders_a_text": (calls(rendered, (x,)), renders_afterwards),
    "renders_beside_a_layer": (renders(whole=True), renders(whole=False)),
    "raises_by_an_item": (
        calls(raises_by_an_item, (x,)),
        configured(calls(requires_an_item, (x,)), captures),
    ),
    "must_raise_by_an_item": (
        whole(raises_by_an_item, raises_by_an_item),
        whole(requires_an_item, requires_an_item),
    ),
    "branches_on_how_many": (
        configured(calls(branches_on_how_many, (x,)), captures),
        configured(calls(takes_one_side_by_how_many, (x,)), captures),
    ),
    "ends_a_loop_by_a_call": (calls(ends_a_loop_by_a_call, (x,)), lambda c: [doubles_outside(c)]),
    "loops_by_an_item": (calls(loops_by_an_item, (x,)), calls(loops_by_a_tensor, (x,))),
    "clips_and_checks": (clips(checks=True), clips(checks=False)),
    "has_an_rnn": (calls(takes_the_last, (x,)), configured(calls(takes_the_last, (x,)), allows_rnn)),
    "trains_a_gru": (trains_a_gru, configured(trains_a_gru, allows_rnn)),
    "has_a_packed_rnn": (
        calls(takes_the_last_packed, (x,)),
        configured(calls(takes_the_last_padded, (x,)), allows_rnn),
    ),
    "warns_of_values": (calls(warns_of_values, (x,)), warns_afterwards),
    "multiplies_by_an_item": (calls(takes_an_item, (x,)), calls(multiplies, (x,))),
    "defines_a_class": (calls(defines_a_class, (x,), (x,)), calls(takes_a_class, (x,), (x,))),
    "counts_values": (
        calls(counts_values, (x, torch.tensor([0, 1, 1, 1]))),
        calls(counts_into, (x, torch.tensor([0, 1, 1, 1]))),
    ),
    "lists_the_counts": (
        calls(lists_the_counts, (x, torch.tensor([0, 1, 1, 1]))),
        calls(takes_the_sizes, (x, [1, 3])),
    ),
    "finds": (
        calls(finds, (x,)),
        configured(calls(finds, (x,)), lambda: setattr(config, "capture_dynamic_output_shape_ops", True)),
    ),
    "skips_what_is_empty": (
        calls(of_experts(skips=True), (x, torch.tensor([0, 1, 1, 0]))),
        configured(
            calls(of_experts(skips=False), (x, torch.tensor([0, 1, 1, 0]))),
            lambda: setattr(config, "capture_dynamic_output_shape_ops", True),
        ),
    ),
    "wrapped_by_ddp": (
        ddp(lambda c, model: c(DistributedDataParallel(model))),
        ddp(lambda c, model: DistributedDataParallel(c(model))),
    ),
    "wrapped_by_fsdp2": (sharded(False), sharded(True)),
    "raises": (raises_inside, checks_before),
    "hides_tensors_in_an_object": (
        calls(hides_tensors_in_an_object, (Output(x),)),
        passes_tensors_to_a_function,
    ),
    "marks_a_fixed_size": (marks(torch._dynamo.mark_dynamic), marks(torch._dynamo.maybe_mark_dynamic)),
    "operator_without_autograd": (tuned(twice, 2), tuned(thrice, 3)),
    "a_list_that_is_filled": (fills_a_list(before=False), fills_a_list(before=True)),
    "a_list_that_is_added_to": (adds_to_a_list(outside=False), adds_to_a_list(outside=True)),
    "picks_of_an_array": (picks_of(SCHEDULE), picks_of(torch.from_numpy(SCHEDULE))),
    "rounds_by_numpy": (applies(rounds_by(np.floor)), applies(rounds_by(math.floor))),
    "rounds_by_numpy_as_a_float": (
        applies(rounds_by(np.floor)),
        applies(rounds_by(lambda number: float(np.floor(number)))),
    ),
    "operator_without_a_fake": (applies(unknown_shape), applies(twice)),
    "goes_backward": (trains(calls_backward), trains_outside),
    "goes_backward_in_the_graph": (
        trains(calls_backward),
        configured(trains(calls_backward), lambda: setattr(config, "trace_autograd_ops", True)),
    ),
    "links_a_library": (compiled_with("-llent"), compiled_with("-llent", found=True)),
    "includes_a_header": (compiled_with("-include lent.h"), compiled_with("-include lent.h", found=True)),
    "failing_backend": (with_backend(no_luck), with_backend("eager")),
    "sleeps": (calls(sleeps, (x,)), sleeps_afterwards),
    "reads_a_computed_attribute": (
        calls(reads_settings, (x, Settings(rate=2.0))),
        calls(reads_settings, (x, SimpleNamespace(rate=2.0))),
    ),
    "asks_for_the_size_of_what_is_made": (calls(asks_for_the_size_of_what_is_made, (x,)), asks_between),
    "opens_a_file": (calls(opens_a_file, (x,)), opens_before),
    "asks_for_the_threads": (calls(asks_for_the_threads, (x,)), asks_before),
    "copies_a_module": (calls(copies_a_module, (x,)), copies_before),
    "asserts_values": (calls(asserts_values, (x,)), calls(asserts_sizes, (x,))),
    "asserts_in_the_graph": (calls(asserts_values, (x,)), calls(asserts_in_the_graph, (x,))),
    "branches_on_values": (calls(branches_on_values, (x,)), calls(chooses, (x,))),
    "branches_on_two_values": (calls(branches_on_two_values, (x,)), calls(chooses_by_two_values, (x,))),
    "branches_or_keeps": (calls(branches_or_keeps, (x,)), calls(takes_one_side_or_copies, (x,))),
    "halves_or_keeps": (calls(halves_or_keeps, (x,)), calls(halves_or_copies_in_the_graph, (x,))),
    "branches_to_one_side": (calls(branches_on_values, (x,)), calls(takes_one_side, (x,))),
    "logs_an_item": (
        calls(logs_an_item, (x,)),
        converts_afterwards(lambda v: v.item(), lambda v: (v.sum(), v * 2)),
    ),
    "logs_a_list": (calls(logs_a_list, (x,)), converts_afterwards(lambda v: v.tolist(), lambda v: (v, v * 2))),
    "selects_by_a_mask": (calls(selects_by_a_mask, (x,)), calls(multiplies_by_a_mask, (x,))),
    "asks_for_a_break": (calls(asks_for_a_break, (x,)), calls(doubles, (x,))),
    "calls_a_c_function": (calls(calls_a_c_function, (x,)), calls(calls_an_operator, (x,))),
    "calls_a_constant_function": (calls(calls_a_constant_function, (x,)), calls(calls_a_marked_function, (x,))),
    "enters_a_lock": (calls(enters_a_lock, (x,)), enters_outside),
    "works_under_a_lock": (calls(enters_a_lock, (x,)), enters_outside),
    "takes_a_sparse_tensor": (calls(takes_a_sparse_tensor, (x.to_sparse(),)), densifies_before),
    "requires_gradients": (calls(requires_gradients, (x,)), requires_before),
    "retains_a_gradient": (retains, retains_outside),
    "resizes": (calls(resizes, (x,)), calls(allocates, (x,))),
    "appends_in_a_branch": (broken(appends_in_a_branch), broken(takes_one_side)),
    "makes_an_array": (calls(makes_an_array, (x,)), calls(stacks, (x,))),
    "draws_from_a_generator": (draws_from_a_generator, draws_before),
    "draws_with_numpy": (draws_with_numpy, draws_before_with_numpy),
    "copies_a_tensor": (calls(copies_a_tensor, (x,)), calls(clones_a_tensor, (x,))),
    "drops_a_layer": (drops_a_layer, drops_outside),
    "goes_so_deep": (goes_so_deep(outside=False), goes_so_deep(outside=True)),
    "drops_a_layer_by_a_name": (drops_a_layer_by_a_name, drops_outside),
    "a_mode_by_an_integer": (in_low_precision_from(5), calls(in_low_precision, *((x, n > 5) for n in (2, 3, 4)))),
    "a_coroutine": (a_coroutine, calls_compiled),
    "a_loop_with_a_break": (calls(loops_with_a_break, (x,)), calls(loops_without_one, (x,))),
    "marks_multiples": (marked_multiples, maybe_marked_multiples),
    "marks_a_wide_range": (marked_range(64), marked_range(5)),
    "breaks_in_a_transform": (in_a_transform(breaks_half_way), in_a_transform(lambda v: (v**2).sum())),
    "fails_in_a_transform": (
        in_a_transform(breaks_half_way, backend="eager"),
        in_a_transform(lambda v: (v**2).sum(), backend="eager"),
    ),
    "is_given_to_a_transform": (
        lambda compile_: torch.vmap(compile_(doubles))(torch.ones(2, 4)),
        lambda compile_: compile_(torch.vmap(doubles))(torch.ones(2, 4)),
    ),
    "keeps_an_item_in_a_hook": (keeps_in_a_hook(number=True), keeps_in_a_hook(number=False)),
    "marks_a_size_unbacked": (
        marked_size(torch._dynamo.decorators.mark_unbacked),
        marked_size(torch._dynamo.mark_dynamic),
    ),
    "decides_by_an_address": (
        calls(decides_by_an_address, (x,)),
        calls(lambda v: v + 1 if torch.compiler.is_compiling() or v.data_ptr() % 4 == 0 else v - 1, (x,)),
    ),
    "decides_by_an_address_outside": (
        calls(decides_by_an_address, (x,)),
        lambda compile_: [compile_(lambda v, aligned: v + 1 if aligned else v - 1)(x, x.data_ptr() % 4 == 0)],
    ),
    "prints_in_a_backward": (spikes(PrintingSpike), spikes(Spike)),
    "prints_in_a_backward_between": (spikes(PrintingSpike), spikes(PrintingSpike, between=True)),
    "tries_an_attribute": (
        tries(asks_in_a_try),
        tries(lambda v: (v + 1).scale.sum() if hasattr(v + 1, "scale") else (v + 2).sum()),
    ),
    "tries_an_attribute_with_a_default": (
        tries(asks_in_a_try),
        tries(lambda v: getattr(v + 1, "scale", v + 2).sum()),
    ),
    "drops_the_same_twice": (drops(once=False), drops(once=True)),
    "skips_empty_parts": (
        configured(calls(splits(skips=True), (PARTS, SIZES)), captures),
        configured(calls(splits(skips=False), (PARTS, SIZES)), captures),
    ),
    "enters_a_context": (adds_under_a_context, calls(enters_a_context, (x,))),
    "yields_each_step": (
        lambda compile_: [list(compile_(steps_of)(x))],
        calls(lambda v: list(steps_of(v)), (x,)),
    ),
    "takes_a_median": (calls(takes_a_median, (x,)), calls(takes_torchs_median, (x,))),
    "a_nested_tensor": (nested(torch.strided), nested(torch.jagged)),
    "partials": (partials(around=False), partials(around=True)),
    "a_parameter_as_an_argument": (weights(dynamic=True), configured(weights(dynamic=True), frees_parameters)),
    "a_parameter_of_another_size": (gains(), configured(gains(dynamic=True), frees_parameters)),
    "a_key_of_a_dict": (keyed, calls(lambda v, entry: v + entry, *((x, entry) for entry in ENTRIES.values()))),
    "a_key_that_is_added": (with_a_key(before=False), with_a_key(before=True)),
    "a_gradient_set_to_none": (with_kept_gradient(kept=False), with_kept_gradient(kept=True)),
    "a_class_defined_anew": (with_classes(anew=True), with_classes(anew=False)),
    "a_size_of_one": (sized((4,), (1,), dynamic=True), unbacked),
    "sizes_without_automatic": (
        configured(sized((4,), (5,), (6,)), compiles_each_size),
        configured(sized((4,), (5,), (6,), dynamic=True), compiles_each_size),
    ),
    "a_number_without_automatic": (
        configured(calls(times, (x, 2), (x, 3)), compiles_each_size),
        configured(calls(times, (x, 2), (x, 3), dynamic=True), compiles_each_size),
    ),
    "other_placements": (placed(again=False), placed(again=True)),
    "takes_a_median_outside": (
        calls(takes_a_median, (x,)),
        lambda compile_: [compile_(lambda v, median: median + v)(x, torch.as_tensor(np.nanmedian(x.numpy())))],
    ),
    "writes_tokens": (writes_tokens("DynamicCache"), writes_tokens("StaticCache")),
    "a_nested_batch": (nests(marked=False), nests(marked=True)),
    "modules_with_a_number": (
        with_factors_of_modules,
        configured(with_factors_of_modules, lambda: setattr(config, "allow_unspec_int_on_nn_module", True)),
    ),
    "a_key_in_a_store": (fills_stores(outside=False), fills_stores(outside=True)),
    "a_list_of_modules_that_grows": (adds_modules(whole=True), adds_modules(whole=False)),
    "a_parameter_or_a_tensor": (
        calls(normed, (WEIGHT,), (WEIGHT.detach().requires_grad_(),)),
        calls(normed, (WEIGHT.view_as(WEIGHT),), (WEIGHT.detach().requires_grad_(),)),
    ),
    "a_tree": (walks_trees(whole=True), walks_trees(whole=False)),
    "static_sizes": (sized((4,), (5,), (6,), dynamic=False), marked_sizes(4, 5, 6)),
    "many_sizes": (sized((2, 3, 4, 5, 6), MANY), sized((2, 3, 4, 5, 6), MANY, dynamic=True)),
    "a_size": (sized((4,), (5,)), sized((4,), (5,), dynamic=True)),
    "a_size_after_a_break": (
        calls(shortens_before_a_break, (torch.ones(4),), (torch.ones(6),)),
        calls(shortens, (torch.ones(4),), (torch.ones(6),), dynamic=True),
    ),
    "a_size_marked": (sized((4,), (5,)), marked_sizes(4, 5)),
    "a_multiple": (
        calls(pairs, (torch.ones(4),), (torch.ones(5),), dynamic=True),
        calls(pairs, (torch.ones(4),), (torch.cat([torch.ones(5), torch.zeros(1)]),), dynamic=True),
    ),
    "a_parameter_of_torchs_module": (
        widens(layer=True, dynamic=True),
        configured(widens(layer=True, dynamic=True), frees_modules),
    ),
    "a_parameter_and_its_size": (scales_widths, configured(scales_widths, frees_all)),
    "a_buffer_of_another_size": (
        widens(layer=False, dynamic=True),
        configured(widens(layer=False, dynamic=True), frees_parameters),
    ),
    "equal_sizes": (
        calls(squares, (torch.ones(4, 4),), (torch.ones(5, 4),), dynamic=True),
        marking(squares, torch._dynamo.mark_dynamic, torch.ones(4, 4), torch.ones(5, 4), dynamic=True),
    ),
    "equal_sizes_apart": (
        calls(squares, (torch.ones(4, 4),), (torch.ones(5, 4),), dynamic=True),
        configured(calls(squares, (torch.ones(4, 4),), (torch.ones(5, 4),), dynamic=True), shares_no_symbols),
    ),
    "sizes_of_one": (short_batches(marked=False), short_batches(marked=True)),
    "a_slice_of_many_sizes": (slices(contiguous=False), slices(contiguous=True)),
    "a_rate_of_each_block": (noise(buffer=False), noise(buffer=True)),
    "a_view_that_is_kept": (streams(contiguous=False), streams(contiguous=True)),
    "a_cache_that_grows": (grows(filled=False), grows(filled=True)),
    "picks_a_module": (picks(outside=False), picks(outside=True)),
    "counts_a_loop": (repeats(outside=False), repeats(outside=True)),
    "an_integer_of_an_object": (
        calls(adds_a_number, (x, Counts(3)), (x, Counts(4))),
        calls(adds_a_number, (x, Counts(3)), (x, Counts(4)), dynamic=True),
    ),
    "a_cycled_momentum": (cycles(left=False), cycles(left=True)),
    "a_list_of_losses": (losses(outside=False), losses(outside=True)),
    "a_keyword_at_times": (with_factor(always=False), with_factor(always=True)),
    "two_sizes_marked": (adds_both(marked=False), adds_both(marked=True)),
    "two_sizes_apart": (
        calls(adds_sizes, (x, y), (zeros, torch.ones(5)), dynamic=True),
        configured(calls(adds_sizes, (x, y), (zeros, torch.ones(5)), dynamic=True), shares_no_symbols),
    ),
    "two_sizes": (
        calls(adds_sizes, (x, y), (zeros, torch.ones(5)), dynamic=True),
        lambda c: calls(adds_sizes, (zeros, torch.ones(5)), (x, y), dynamic=True)(c)[::-1],
    ),
    "a_range_of_sizes": (
        calls(far, (torch.ones(4),), (torch.ones(40),), dynamic=True),
        calls(far, (torch.ones(14),), (torch.ones(40),), dynamic=True),
    ),
    "a_step_for_each_token": (
        calls(times_steps, (x[None], y[:1]), (x[None], y[None])),
        calls(times_steps, (x[None], y[:1, None].expand(1, 4).contiguous()), (x[None], y[None])),
    ),
    "a_rank": (calls(torch.sum, (x,), (x[None],)), calls(torch.sum, (x[None],), (x[None],))),
    "a_dtype": (calls(doubles, (x,), (x.double(),)), calls(doubles, (x,), (x.double().float(),))),
    "a_stride": (
        calls(doubles, (torch.ones(3, 4),), (torch.ones(4, 3).t(),)),
        calls(doubles, (torch.ones(3, 4),), (torch.ones(4, 3).t().contiguous(),)),
    ),
    "a_device": (
        shapes(lambda v: v + 1, (torch.ones(4),), (torch.ones(4, device="meta"),)),
        shapes(lambda v: v + 1, (torch.ones(4, device="meta"),), (torch.ones(4, device="meta"),)),
    ),
    "gradients": (with_gradients(on=True), with_gradients(on=False)),
    "a_frozen_parameter": (changes_a_layer(freezes, before=False), changes_a_layer(freezes, before=True)),
    "differentiates_inside": (
        gradient_of(differentiates),
        configured(gradient_of(differentiates), lambda: setattr(config, "trace_autograd_ops", True)),
    ),
    "keeps_a_norm_in_a_hook": (norm_kept_by_hook, norm_kept_between),
    "picks_a_row": (picks_a_row(reshaped=False), picks_a_row(reshaped=True)),
    "picks_modules_by_values": (routes("picked"), routes("every")),
    "loops_over_what_was_hit": (routes("hit"), routes("all")),
    "lists_what_was_met": (
        calls(lists_what_was_met, (x, torch.tensor([0, 1, 1, 2]))),
        calls(lists_all_that_may_be_met, (x, torch.tensor([0, 1, 1, 2]))),
    ),
    "takes_a_batch": (takes_a_batch, lambda compile_: compile_(lambda v: v * 2)(next(batches()))),
    "a_hook_that_goes": (removes_a_hook(keeps=False), removes_a_hook(keeps=True)),
    "hooks_of_some_layers": (hooks_of_layers(of_all=False), hooks_of_layers(of_all=True)),
    "a_bias_taken_away": (
        changes_a_layer(takes_the_bias, before=False),
        changes_a_layer(takes_the_bias, before=True),
    ),
    "the_same_tensor": (
        calls(lambda a, b: a * 2 + b, (x, y), (y, y)),
        calls(lambda a, b: a * 2 + b, (x, y), (y, y.clone())),
    ),
    "an_inference_tensor": (inference(made_alike=False), inference(made_alike=True)),
    "an_inference_tensor_first": (inference(made_alike=False, first=True), inference(made_alike=True, first=True)),
    "a_conjugated_view": (
        calls(lambda v: v * 2, (torch.ones(4) * 1j,), ((torch.ones(4) * -1j).conj(),)),
        calls(lambda v: v * 2, (torch.ones(4) * 1j,), ((torch.ones(4) * -1j).conj().resolve_conj(),)),
    ),
    "inference_mode": (with_state(plain, torch.inference_mode), with_state(plain, plain)),
    "grad_mode": (with_state(plain, torch.no_grad), with_state(torch.no_grad, torch.no_grad)),
    "autocast": (
        with_state(plain, lambda: torch.autocast("cpu")),
        with_state(lambda: torch.autocast("cpu"), lambda: torch.autocast("cpu")),
    ),
    "autocast_dtypes": (
        with_state(lambda: torch.autocast("cpu", torch.bfloat16), lambda: torch.autocast("cpu", torch.float16)),
        with_state(lambda: torch.autocast("cpu", torch.bfloat16), lambda: torch.autocast("cpu", torch.bfloat16)),
    ),
    "threads": (with_state(plain, lambda: threads(3)), with_state(lambda: threads(3), plain)),
    "default_dtype": (
        with_state(plain, lambda: dtype_of_defaults(torch.float64)),
        with_state(lambda: dtype_of_defaults(torch.float64), plain),
    ),
    "deterministic": (with_state(plain, lambda: deterministic(True)), with_state(lambda: deterministic(True), plain)),
    "matmul_precision": (with_state(plain, lambda: precision("high")), with_state(lambda: precision("high"), plain)),
    "function_mode": (with_state(plain, Mode), with_state(Mode, Mode)),
    "default_device": (
        with_state(plain, lambda: device_of_defaults("meta")),
        with_state(lambda: device_of_defaults("meta"), plain),
    ),
    "saved_tensor_hooks": (with_state(plain, hooks), with_state(lambda: HOOKS, lambda: HOOKS)),
    "a_transform": (transformed(everywhere=False), transformed(everywhere=True)),
    "dual_level": (jvp(plain, forward_ad.dual_level), jvp(plain, plain)),
    "torch_function_off": (
        with_state(plain, torch._C.DisableTorchFunction),
        with_state(torch._C.DisableTorchFunction, torch._C.DisableTorchFunction),
    ),
    "two_backends": (backends(2), backends(1)),
    "training": (switched((True, False)), switched((False, False))),
    "a_closure": (closing, calls(times, (x, 2), (x, 3), dynamic=True)),
    "a_closure_of_a_mask": (masks(int), masks(torch.tensor)),
    "counts_a_global": (counting(outside=False), counting(outside=True)),
    "a_global": (a_global, calls(times, (x, 2), (x, 3), dynamic=True)),
    "a_global_text": (a_global_text(("fast", "slow")), a_global_text(("slow", "slow"))),
    "a_learning_rate": (scheduled(0.5), scheduled(torch.tensor(0.5))),
    "a_learning_rate_of_adam": (
        scheduled(0.5, torch.optim.Adam),
        scheduled(torch.tensor(0.5), torch.optim.Adam),
    ),
    "a_weight_decay": (decays(), decays(dynamic=True)),
    "a_float_as_alpha": (
        calls(lambda v, s: torch.add(v, y, alpha=s), (x, 2.5), (x, 3.5), (x, 4.5)),
        calls(lambda v, s: v + s * y, (x, 2.5), (x, 3.5), (x, 4.5), dynamic=True),
    ),
    "a_float_as_negative_alpha": (
        calls(lambda v, s: torch.add(v * s, y, alpha=-s), (x, 2.5), (x, 3.5), (x, 4.5), dynamic=True),
        calls(lambda v, s: v * s + y * -s, (x, 2.5), (x, 3.5), (x, 4.5), dynamic=True),
    ),
    "a_float_for_clamp": (
        calls(lambda v, s: v.clamp(max=s), (x, 0.5), (x, 1.5), (x, 2.5)),
        calls(lambda v, s: v.clamp(max=s), *((x, torch.tensor(s)) for s in (0.5, 1.5, 2.5))),
    ),
    "a_pair_that_grows": (decodes_pairs(whole=False), decodes_pairs(whole=True)),
    "an_integer_that_decides": (with_steps(outside=False), with_steps(outside=True)),
    "an_integer_that_decides_unspecialized": (
        with_steps(outside=False),
        configured(
            with_steps(outside=False, dynamic=True),
            lambda: setattr(config, "allow_unspec_int_on_nn_module", True),
        ),
    ),
    "an_integer_attribute": (with_factors(2, 3), with_a_buffer(2, 3)),
    "an_integer_attribute_unspecialized": (
        with_factors(2, 3),
        configured(with_factors(2, 3, dynamic=True), lambda: setattr(config, "allow_unspec_int_on_nn_module", True)),
    ),
    "an_integer_that_slices": (with_places(), with_places(given=True, dynamic=True)),
    "an_integer_that_slices_unspecialized": (
        with_places(),
        configured(with_places(dynamic=True), lambda: setattr(config, "allow_unspec_int_on_nn_module", True)),
    ),
    "an_integer_of_an_object_of_a_module": (
        with_held_factors(2, 3),
        with_held_factors(*(torch.tensor(factor) for factor in (2, 3))),
    ),
    "an_integer_of_an_object_of_a_module_unspecialized": (
        with_held_factors(2, 3),
        configured(
            with_held_factors(2, 3, dynamic=True), lambda: setattr(config, "allow_unspec_int_on_nn_module", True)
        ),
    ),
    "an_attribute": (with_modes("fast", "slow"), with_modes("slow", "slow")),
    "a_length_of_a_list": (
        calls(counts_items, (x, 2), (x, 3), (x, 4)),
        calls(adds_a_count, *((x, torch.tensor(n)) for n in (2, 3, 4))),
    ),
    "a_static_integer": (
        calls(times, (x, 2), (x, 3), dynamic=False),
        calls(times, (x, 2), (x, 3), dynamic=True),
    ),
    "a_static_counter": (
        with_factors(2, 3, dynamic=False),
        configured(with_factors(2, 3, dynamic=True), lambda: setattr(config, "allow_unspec_int_on_nn_module", True)),
    ),
    "a_static_counter_in_a_tensor": (with_factors(2, 3, dynamic=False), with_a_buffer(2, 3)),
    "an_integer": (calls(times, (x, 2), (x, 3)), calls(times, (x, 2), (x, 3), dynamic=True)),
    "a_text": (
        calls(reduces, (x, "sum"), (x, "mean")),
        lambda c: [c(torch.sum)(x), c(lambda v: v.mean())(x)],
    ),
    "a_float_again": (
        calls(times, (x, 2.5), (x, 3.5), (x, 4.5), dynamic=False),
        calls(times, *((x, torch.tensor(n)) for n in (2.5, 3.5, 4.5))),
    ),
    "a_float": (calls(times, (x, 2.5), (x, 3.5)), calls(times, (x, 2.5), (x, 3.5), dynamic=True)),
    "a_float_in_a_tensor": (with_factors(2.5, 3.5), with_a_buffer(2.5, 3.5)),
    "a_length": (values(1, (2, 3)), values(0, (2, 3))),
    "a_list_that_is_extended": (extends_a_list(before=False), extends_a_list(before=True)),
    "a_tied_weight": (ties(before=False), ties(before=True)),
    "a_cache_of_torchs": (parametrized(cached=True), parametrized(cached=False)),
    "a_filled_dict": (keeps_last(), keeps_last(last=x)),
    "a_cache": (decodes(initialized=False), decodes(initialized=True)),
    "keyword_arguments": (with_keywords({}, {"one": 1}), with_keywords({"one": 1}, {"one": 1})),
    "keys": (
        calls(lambda v, d: v + sum(d.values()), (x, {"a": y}), (x, {"b": y})),
        calls(lambda v, d: v + sum(d.values()), (x, {"a": y}), (x, {"a": y})),
    ),
    "membership": (
        calls(lambda v, d: v + 1 if "a" in d else 1 + v, (x, {"b": 1}), (x, {"a": 1})),
        calls(lambda v, known: v + 1, (x, False), (x, False)),
    ),
    "another_function": (
        calls(lambda v, g: g(v), (x, doubles), (x, lambda v: v * 2 + 2)),
        calls(lambda v, g: g(v), (x, doubles), (x, doubles)),
    ),
    "another_object": (
        calls(lambda v, kind: v * kind.factor, (x, Twice), (x, Thrice)),
        calls(lambda v, factor: v * factor, (x, Twice.factor), (x, Thrice.factor)),
    ),
    "another_member": (
        calls(lambda v, kind: v + 1 if kind is Kind.FIRST else 1 + v, (x, Kind.FIRST), (x, Kind.SECOND)),
        calls(lambda v, kind: v + 1 if kind is Kind.FIRST else 1 + v, (x, Kind.FIRST), (x, Kind.FIRST)),
    ),
    "a_freed_optimizer": (steps(again=False), steps(again=True)),
    "a_layer_put_in_place": (replaces(before=False), replaces(before=True)),
    "a_type": (
        calls(lambda v, items: v + len(items), (x, [1]), (x, (1,))),
        calls(lambda v, items: v + len(items), (x, [1]), (x, [1])),
    ),
    "none": (
        calls(lambda v, o: v + 0 if o is None else v + o, (x, None), (x, zeros)),
        calls(lambda v, o: v + 0 if o is None else v + o, (x, zeros), (x, zeros)),
    ),
    "an_attribute_of_its_own": (own_attribute(from_the_start=False), own_attribute(from_the_start=True)),
    "presence": (present(from_the_start=False), present(from_the_start=True)),
    "a_value_from_a_break": (
        calls(after_a_break, (x, 1), (x, 2)),
        calls(without_a_break, (x, 1), (x, 1)),
    ),
    "skips_a_pass_of_a_loop": (calls(skips_a_pass_of_a_loop, (x,)), loops_outside),
    "breaks_out_of_a_loop": (calls(breaks_out_of_a_loop, (x,)), loops_outside),
    "loops_on_values": (calls(loops_on_values, (x,)), loops_outside),
    "loops_on_values_in_the_graph": (calls(loops_on_values, (x,)), calls(loops_in_the_graph, (x,))),
    "takes_the_time": (takes_the_time, takes_the_time_around),
    "numbers_batches": (calls(numbers_batches, (x,)), numbers_batches_outside),
    "loops_over_a_bar": (calls(loops_over_a_bar, (x,)), calls(loops_over_a_range, (x,))),
    "sorts_by_a_size": (sorts(len, before=False), sorts(len, before=True)),
    "sorts_by_a_value": (sorts(torch.max, before=False), sorts(torch.max, before=True)),
    "names_a_layer": (names_a_layer(dynamic=True), names_it_outside),
    "names_a_layer_of_each_number": (
        lambda c: [c(NamedLayers(), dynamic=True)(x, 2)],
        lambda c: [c(NamedLayers(), dynamic=False)(x, 2)],
    ),
    "picks_a_layer_by_name": (names_a_layer(dynamic=False), names_it_outside),
    "draws_with_a_generator": (draws_with_a_generator, draws_with_it_before),
    "counts_in_a_checkpoint": (counts_in_a_checkpoint(inside=True), counts_in_a_checkpoint(inside=False)),
    "warns_with_a_category": (
        calls(warns_with_a_category, (x,)),
        configured(calls(warns_with_a_category, (x,)), lambda: config.ignore_logging_functions.add(warnings.warn)),
    ),
    "steps_an_optimizer": (steps_an_optimizer(outside=False), steps_an_optimizer(outside=True)),
    "steps_an_optimizer_in_a_loop": (steps_an_optimizer(outside=False, times=1), steps_an_optimizer(outside=True)),
    "a_size_and_its_number": (
        calls(pads, (torch.ones(4), 4), (torch.ones(6), 6)),
        calls(pads, (torch.ones(4), 4), (torch.ones(6), 6), dynamic=True),
    ),
    "layers_with_an_index": (layers_with_an_index(together=False), layers_with_an_index(together=True)),
    "layers_with_a_name": (
        layers_with_an_index(together=False, kind=Named),
        layers_with_an_index(together=True, kind=Named),
    ),
    "layers_of_two_classes": (
        layers_that_differ(Activated, Halved, acts=[nn.ReLU(), nn.ReLU()], together=False),
        layers_that_differ(Activated, Halved, acts=[nn.ReLU(), nn.ReLU()], together=True),
    ),
    "layers_with_two_activations": (
        layers_that_differ(Activated, Activated, acts=[nn.ReLU(), nn.GELU()], together=False),
        layers_that_differ(Activated, Activated, acts=[nn.ReLU(), nn.GELU()], together=True),
    ),
    "layers_with_and_without": (
        layers_that_differ(Activated, Activated, acts=[nn.ReLU(), None], together=False),
        layers_that_differ(Activated, Activated, acts=[nn.ReLU(), None], together=True),
    ),
    "a_converted_module": (converts(before=False), converts(before=True)),
    "a_slice_with_an_offset": (slices_with_offsets(copied=False), slices_with_offsets(copied=True)),
    "drops_more": (drops_more(own=False), drops_more(own=True)),
}
