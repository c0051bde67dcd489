"""Where compiled values diverge from the uncompiled graph's, and how the search uses it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from dynadiag.bisection.divergence import _distance
from dynadiag.recording.reader import Recording
from tests.bisection.conftest import Bisected

# Without caches: their keys do not cover a lowering that a program replaces.
PROGRAM = """
import torch, torch._inductor.lowering as lowering
from torch._inductor.virtualized import V

torch._inductor.config.fx_graph_cache = False
aten = torch.ops.aten

def plant(op, name, change):
    inner = lowering.lowerings[op]
    def planted(*args, **kwargs):
        out = inner(*args, **kwargs)
        return change(out) if V.current_node.name == name else out
    lowering.lowerings[op] = planted

{plant}

def f(x, y):
    for _ in range(6):
        x = torch.tanh(torch.relu(x) @ y) + torch.sigmoid(x)
    return x

torch.manual_seed(0)
x, y = torch.randn(8, 8), torch.eye(8)
random = torch.get_rng_state()
with torch.no_grad():
    ours = torch.compile(f)(x, y)
    assert torch.equal(random, torch.get_rng_state())
    torch.testing.assert_close(ours, f(x, y))
"""
WRONG = "plant(aten.sigmoid.default, 'sigmoid_3', lambda out: lowering.lowerings[aten.mul.Tensor](out, 1.5))"
RAISES = """
def raises(out):
    raise RuntimeError("planted")
plant(aten.tanh.default, 'tanh_5', raises)
"""
AT_RUN_TIME = """
from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides
failing = lambda x: "[&]{{" + {fails!r} + "; return " + str(x) + ";}}()"
CppOverrides.trunc = CppVecOverrides.trunc = staticmethod(failing)
plant(aten.sigmoid.default, 'sigmoid_3', lambda out: lowering.lowerings[aten.trunc.default](out))
"""
_LOWERINGS = 30  # in f


def test_a_wrong_kernel_is_found_by_its_values_and_not_by_bisection(bisected: Bisected, tmp_path: Path) -> None:
    verdict = bisected(PROGRAM.format(plant=WRONG))
    assert [(c.group, c.name) for c in verdict.culprits] == [("lowering", "sigmoid_3")]
    assert len(verdict.confirmed) == 2
    assert _switched(tmp_path) < math.log2(_LOWERINGS) + 4, "as many as halving takes"
    (note,) = verdict.notes  # sigmoid_3 is not stored, but the sum that it is a part of
    assert note.startswith("the first stored value that diverges is add_3 (inference of compile 0/0): ")


def _switched(folder: Path) -> int:
    """The number of trials with anything switched off."""
    with Recording(folder / "search.dynadiag") as search:
        return sum('"switches":[{' in trial.candidate for trial in search.trials())


@pytest.mark.parametrize(
    ("fails", "kind"),
    [
        ("abort()", "signal"),
        pytest.param('throw std::runtime_error("planted")', "exception", marks=pytest.mark.slow),
        pytest.param("volatile int on = 1; while (on) {}", "hang", marks=pytest.mark.slow),
    ],
)
def test_a_kernel_that_fails_while_it_runs_names_what_it_computes(
    bisected: Bisected, tmp_path: Path, fails: str, kind: str
) -> None:
    verdict = bisected(PROGRAM.format(plant=AT_RUN_TIME.format(fails=fails)), timeout=60.0)
    assert verdict.failure is not None
    assert verdict.failure.kind == kind
    assert [(c.group, c.name) for c in verdict.culprits] == [("lowering", "sigmoid_3")]
    assert _switched(tmp_path) < math.log2(_LOWERINGS) + 4, "as many as halving takes"
    assert not any("diverges" in note for note in verdict.notes)


def test_a_lowering_that_raises_after_many_left_to_aten(bisected: Bisected) -> None:
    """torch prints each argument with everything that it was computed from; without a limit that never ends here."""
    verdict = bisected(PROGRAM.format(plant=RAISES), timeout=60.0)
    assert [(c.group, c.name) for c in verdict.culprits] == [("lowering", "tanh_5")]
    assert not verdict.other_failures


@pytest.mark.parametrize(
    ("value", "wanted", "least", "most"),
    [
        (torch.ones(4), torch.ones(4), 0.0, 0.0),
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0]), 0.5, 0.5),
        (torch.tensor([1.0, math.nan]), torch.tensor([1.0, math.nan]), 0.0, 0.0),
        (torch.tensor([1.0, math.nan]), torch.tensor([1.0, 2.0]), math.inf, math.inf),
        (torch.tensor([1, 2, 3, 4]), torch.tensor([1, 2, 3, 5]), 0.25, 0.25),
        (torch.tensor([1 + 1j]), torch.tensor([1 - 1j]), 1.4, 1.5),
        (torch.zeros(3), torch.full((3,), 1e-20), 1.0, 1.0),
        (torch.zeros(2, 3), torch.ones(3, 2), 0.0, 0.0),
        (torch.zeros(0), torch.zeros(0), 0.0, 0.0),
    ],
)
def test_distances(value: torch.Tensor, wanted: torch.Tensor, least: float, most: float) -> None:
    distance, noise = _distance(value, wanted)
    assert least <= distance <= most
    assert noise > 0
