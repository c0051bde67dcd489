"""Programs that time themselves: a trial must see the same passing of time as the program."""

from __future__ import annotations

import pytest

from tests.bisection.conftest import Bisected

FAULT = """
import torch, torch._inductor.lowering as lowering

torch._inductor.config.fx_graph_cache = False

def raises(x):
    raise RuntimeError("no tanh today")

lowering.lowerings[torch.ops.aten.tanh.default] = raises

@torch.compile
def f(x):
    return torch.tanh(torch.sin(x)) * 2

"""
LIMIT = "20"  # seconds, less than the search takes and more than a trial does
STEP = f"""
import time
{FAULT}
started = time.perf_counter()
try:
    f(torch.ones(4))
finally:
    if time.perf_counter() - started > {LIMIT}:
        raise SystemExit("too slow")
"""
DEADLINE = f"""
from time import monotonic
{FAULT}
deadline = monotonic() + {LIMIT}
while monotonic() < deadline:
    f(torch.ones(4))
    break
else:
    raise SystemExit("too late")
"""
WATCHDOG = f"""
import os, threading, time
{FAULT}

def watch():
    time.sleep({LIMIT})
    os._exit(3)

threading.Thread(target=watch, daemon=True).start()
f(torch.ones(4))
"""
ALARM = f"""
import signal
{FAULT}
signal.alarm({LIMIT})
f(torch.ones(4))
"""


STUCK = f"""
import os, threading, time
import torch, torch._inductor.lowering as lowering

torch._inductor.config.fx_graph_cache = False
lowering.lowerings[torch.ops.aten.tanh.default] = lambda x: time.sleep(10_000)

def watch():
    time.sleep({LIMIT})
    os._exit(3)

@torch.compile
def f(x):
    return torch.tanh(torch.sin(x)) * 2

threading.Thread(target=watch, daemon=True).start()
f(torch.ones(4))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "source", [STEP, DEADLINE, WATCHDOG, ALARM, STUCK], ids=["step", "deadline", "watchdog", "alarm", "stuck"]
)
def test_a_program_that_times_itself_gets_the_right_verdict(bisected: Bisected, source: str) -> None:
    verdict = bisected(source)
    assert (verdict.verdict, verdict.rung) == ("found", "inductor")
    assert [(c.group, c.name) for c in verdict.culprits] == [("lowering", "tanh")]
    assert verdict.trials <= 40


# PyTorch issue 148073: the time that Inductor takes grows exponentially with the length of this chain.
CHAIN = """
import torch

torch._inductor.config.fx_graph_cache = False

@torch.compile
def f(a, b, n):
    values = [a, b]
    for _ in range(n):
        values += [values[-1] + values[-2], values[-1] * values[-2]]
    return values[-2] + values[-1]

x, y = (torch.zeros((), requires_grad=True) for _ in range(2))
f(x, y, 9).backward()
"""


@pytest.mark.slow
def test_a_compile_that_grows_with_the_graph_is_put_down_to_no_decision(bisected: Bisected) -> None:
    verdict = bisected(CHAIN, timeout=25.0)
    assert (verdict.verdict, verdict.rung, verdict.culprits) == ("found", "inductor", ())
    assert verdict.failure is not None
    assert verdict.failure.kind == "hang"
    assert any("the more of them are on" in note for note in verdict.notes)
    assert verdict.trials <= 40
