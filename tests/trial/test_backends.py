"""The name and the rung of a compiled graph's backend."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from dynadiag.torch_private.trial import backend_name, lookup_backend
from dynadiag.trial import rungs
from dynadiag.trial.context import TrialContext
from dynadiag.trial.plan import RUNGS, Plan


@pytest.mark.parametrize("name", [rung for rung in RUNGS if rung not in ("uncompiled", "triton", "custom")])
def test_a_rung_given_as_a_function_is_that_rung(name: str) -> None:
    """Taken for a custom backend, a graph that should be compiled at the rung below would be compiled by Inductor."""
    assert backend_name(lookup_backend(name)) == name


def test_a_function_of_the_programs_is_shown_as_one() -> None:
    assert backend_name(lambda gm, inputs: gm).startswith("<")


@pytest.mark.parametrize(
    ("own", "wanted", "used"),
    [
        ("inductor", "eager", "eager"),
        ("inductor", "triton", "inductor"),
        ("inductor", None, "inductor"),
        ("aot_eager", "inductor", "aot_eager"),  # no rung is above that of the program
    ],
)
def test_a_graph_is_compiled_at_the_rung_of_the_trial(
    monkeypatch: pytest.MonkeyPatch, own: str, wanted: str | None, used: str
) -> None:
    trial = TrialContext()
    trial.plan = Plan(rung=wanted)
    monkeypatch.setattr(rungs, "TRIAL", trial)
    graph = SimpleNamespace(compiler_fn=lookup_backend(own))
    assert rungs._call_user_compiler(lambda it: backend_name(it.compiler_fn), graph) == used
    assert backend_name(graph.compiler_fn) == own


ELSEWHERE = """
import threading
import torch._functorch.config as functorch, torch._inductor.config as inductor
from dynadiag.torch_private.trial import bypass_caches, use_eager_random_numbers

bypass_caches()
use_eager_random_numbers()
inductor.fx_graph_cache = True
seen = []
look = lambda: seen.append((inductor.fx_graph_cache, functorch.enable_autograd_cache, inductor.fallback_random))
thread = threading.Thread(target=look)
thread.start()
thread.join()
look()
assert seen == [(False, False, True)] * 2, seen
"""


def test_settings_of_a_trial_hold_in_every_thread_and_against_the_program() -> None:
    subprocess.run([sys.executable, "-c", ELSEWHERE], check=True)
