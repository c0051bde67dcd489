"""Bisections of small programs whose fault is known."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dynadiag.recording.reader import Recording
from tests.bisection.conftest import Bisected

BACKEND = """
import sys, torch

def double(gm):
    for node in gm.graph.nodes:
        if node.target is torch.sin:
            node.target = torch.cos
    gm.recompile()
    return gm

def tidy(gm):
    gm.graph.eliminate_dead_code()
    return gm

def backend(gm, inputs):
    return tidy(double(gm)).forward

def f(x):
    return torch.sin(x) + 1

x = torch.ones(4)
torch.testing.assert_close(torch.compile(f, backend=backend)(x), f(x))
"""

KILLED = """
import os, torch

def tidy(gm):
    gm.graph.eliminate_dead_code()
    return gm

def fatal(gm):
    if any(node.target is torch.sin for node in gm.graph.nodes):
        os.abort()
    return gm

class Pipeline:
    passes = (tidy, fatal, tidy)

    def __call__(self, gm, inputs):
        for one in self.passes:
            gm = one(gm)
        return gm.forward

torch.compile(lambda x: torch.sin(x) + 1, backend=Pipeline())(torch.ones(4))
"""

# Without caches: their keys do not cover a lowering that a program replaces.
LOWERING = """
import torch, torch._inductor.lowering as lowering

torch._inductor.config.fx_graph_cache = False

def raises(x):
    raise RuntimeError("no tanh today")

lowering.lowerings[torch.ops.aten.tanh.default] = raises

def f(x):
    y = torch.sin(x)
    z = torch.tanh(y)
    return z * 2

torch.compile(f, fullgraph=True, options={"max_autotune": False})(torch.ones(4))
"""

# What eager stores in bfloat16 half way, Inductor keeps in float32.
ROUNDED = """
import torch, torch._inductor.lowering as lowering

torch._inductor.config.fx_graph_cache = False
tanh = lowering.lowerings[torch.ops.aten.tanh.default]
lowering.lowerings[torch.ops.aten.tanh.default] = lambda x: {tanh}

def f(x):
    return torch.tanh(x * 1.1 * 1.1 * 1.1) * 1.1

x = torch.linspace(0.5, 3, 64, dtype=torch.bfloat16)
assert torch.equal(torch.compile(f)(x), f(x))
"""


def test_a_wrong_pass_of_a_custom_backend_is_named(bisected: Bisected) -> None:
    verdict = bisected(BACKEND)
    assert (verdict.verdict, verdict.rung, verdict.exit_code) == ("found", "custom", 0)
    assert verdict.rungs["uncompiled"] == verdict.rungs["inductor"] == "pass"
    assert [(c.group, c.name) for c in verdict.culprits] == [("pass", "double")]
    assert len(verdict.confirmed) == 2


def test_a_pass_that_kills_its_process_is_named(bisected: Bisected) -> None:
    verdict = bisected(KILLED)
    assert (verdict.verdict, verdict.rung) == ("found", "custom")
    assert [(c.group, c.name) for c in verdict.culprits] == [("pass", "fatal")]


def test_a_lowering_that_raises_is_named_with_its_line(bisected: Bisected, tmp_path: Path) -> None:
    verdict = bisected(LOWERING)
    assert (verdict.verdict, verdict.rung) == ("found", "inductor")
    (culprit,) = verdict.culprits
    assert (culprit.group, culprit.name, culprit.graph) == ("lowering", "tanh", "inference")
    assert culprit.lines == ((str(tmp_path / "program.py"), 13),)
    with Recording(tmp_path / "search.dynadiag") as search:
        trials = search.trials()
    assert len(trials) == verdict.trials
    assert all(trial.pid for trial in trials)


# Without the first failure another one shows, which only a graph that is uncompiled does not have.
TWO_FAILURES = """
import torch, torch._inductor.lowering as lowering

@torch.library.custom_op("two::half", mutates_args=())
def half(x: torch.Tensor) -> torch.Tensor:
    return x.half()

half.register_fake(torch.empty_like)

def raises(x):
    raise RuntimeError("no erf today")

lowering.lowerings[torch.ops.aten.erf.default] = raises

def f(x):
    return torch.erf(x) + torch.ops.two.half(x).view(torch.int16).sum()

torch.compile(f)(torch.ones(4))
"""


def test_of_two_failures_the_one_that_shows_is_named(bisected: Bisected) -> None:
    verdict = bisected(TWO_FAILURES)
    assert (verdict.verdict, verdict.rung) == ("found", "inductor")
    assert [(culprit.group, culprit.name) for culprit in verdict.culprits] == [("lowering", "erf")]
    assert "another failure shows" in verdict.confirmed[0]


BRANCHES = """
import torch, torch._inductor.lowering as lowering

torch._inductor.config.fx_graph_cache = False
exp = lowering.lowerings[torch.ops.aten.exp.default]
lowering.lowerings[torch.ops.aten.exp.default] = lambda x: exp(exp(x))

def f(x):
    y = torch.exp(x)
    return torch.cond(y.sum() > 0, lambda t: t.exp() + 1, lambda t: t.cos(), (x,)) + y

x = torch.zeros(4)
torch.testing.assert_close(torch.compile(f)(x), f(x))
"""


@pytest.mark.slow
def test_nodes_of_one_name_in_a_graph_and_in_a_branch_of_it_are_two(bisected: Bisected) -> None:
    verdict = bisected(BRANCHES)
    assert [(c.group, c.name) for c in verdict.culprits] == [("lowering", "exp")] * 2
    assert {line for culprit in verdict.culprits for _, line in culprit.lines} == {9, 10}


SCAN = """
from torch._higher_order_ops.scan import scan

def step(carry, row):
    one, other = carry
    one = torch.tanh(one + row)
    return (one, other * one), one + other

@torch.compile(fullgraph=True)
def model(x):
    (one, other), rows = scan(step, (torch.zeros(4), torch.ones(4)), x)
    return one.sum() + other.sum() + rows.mean()

model(torch.ones(6, 4))
"""


def test_a_node_of_a_loop_is_named_with_the_line_of_the_loop(bisected: Bisected, tmp_path: Path) -> None:
    """Even uncompiled, torch compiles a scan as a separate graph. Assertions in a loop are never switched off."""
    start = LOWERING.index("def f")
    verdict = bisected(LOWERING[:start] + SCAN)
    assert (verdict.verdict, verdict.rung, verdict.rungs["uncompiled"]) == ("found", "inductor", "pass")
    (culprit,) = verdict.culprits
    assert (culprit.group, culprit.name) == ("lowering", "tanh")
    assert culprit.lines == ((str(tmp_path / "program.py"), 21),)


def test_where_torch_wrote_every_line_of_the_graph_the_call_of_it_is_named(bisected: Bisected, tmp_path: Path) -> None:
    start = LOWERING.index("def f")
    model = "model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())\ntorch.compile(model)(torch.ones(4))\n"
    verdict = bisected(LOWERING[:start] + model)
    (culprit,) = verdict.culprits
    assert (culprit.group, culprit.name) == ("lowering", "tanh")
    assert culprit.lines == ((str(tmp_path / "program.py"), 12),)


def test_a_program_that_fails_uncompiled(bisected: Bisected) -> None:
    verdict = bisected("import torch\ntorch.compile(lambda x: x.reshape(7))(torch.ones(4))\n")
    assert (verdict.verdict, verdict.exit_code) == ("fails_uncompiled", 4)
    assert not verdict.other_failures


def test_another_failure_of_the_uncompiled_program_is_reported(bisected: Bisected) -> None:
    program = LOWERING[: LOWERING.index("def f")] + "def f(x):\n    if not torch.compiler.is_compiling():\n"
    program += "        raise KeyError('mine')\n    return torch.tanh(x)\n\ntorch.compile(f)(torch.ones(4))\n"
    verdict = bisected(program)
    assert (verdict.verdict, verdict.exit_code) == ("fails_uncompiled", 4)
    assert verdict.other_failures == ("uncompiled: KeyError: 'mine'",)


def test_a_program_that_compiles_nothing_passes(bisected: Bisected) -> None:
    verdict = bisected("print('nothing to see')\n")
    assert (verdict.verdict, verdict.exit_code) == ("passes", 3)
    assert any("nothing was compiled" in note for note in verdict.notes)


@pytest.mark.parametrize(
    ("source", "kind", "accuracy"),
    [
        ("def f(x: return x\n", "SyntaxError", True),
        ("import no_such_module_at_all\n", "ModuleNotFoundError", False),
        ("import torch\nraise SystemExit('no data folder')\n", "1", True),
    ],
    ids=["syntax", "import", "exit"],
)
def test_a_program_that_ends_before_a_compile_is_told_as_that(
    bisected: Bisected, source: str, kind: str, accuracy: bool
) -> None:
    verdict = bisected(source, accuracy=accuracy)
    assert (verdict.verdict, verdict.exit_code) == ("fails_uncompiled", 4)
    assert verdict.failure is not None
    assert verdict.failure.type == kind
    assert str(verdict).startswith("it fails before anything is compiled\n")
    assert '"accuracy"' not in str(verdict)


def test_what_ends_a_thread_alone_is_told(bisected: Bisected) -> None:
    verdict = bisected(
        "import threading\nthread = threading.Thread(target=lambda: 1 / 0)\nthread.start()\nthread.join()\n"
    )
    assert verdict.verdict == "passes"
    assert any("an exception ended a thread, and not the program" in note for note in verdict.notes)


def test_that_trials_have_no_input_is_told_where_one_is_read(bisected: Bisected) -> None:
    verdict = bisected("input()\n")
    assert verdict.verdict == "fails_uncompiled"
    assert any("what the program reads from stdin is empty" in note for note in verdict.notes)


def test_a_program_that_disables_the_compiler_gets_a_note(bisected: Bisected) -> None:
    off = "import os\nos.environ['TORCHDYNAMO_DISABLE'] = '1'\n"
    verdict = bisected(off + "import torch\ntorch.compile(lambda x: x + 1)(torch.ones(2))\n")
    assert (verdict.verdict, verdict.exit_code) == ("passes", 3)
    assert any("TORCHDYNAMO_DISABLE" in note for note in verdict.notes)


def test_a_resumed_search_repeats_no_trial(bisected: Bisected, tmp_path: Path) -> None:
    source = "import torch\ntorch.compile(lambda x: x.reshape(7))(torch.ones(4))\n"
    first = bisected(source)
    with Recording(tmp_path / "search.dynadiag") as search:
        before = [trial.pid for trial in search.trials()]
    second = bisected(source, resume=tmp_path / "search.dynadiag")
    with Recording(tmp_path / "search.dynadiag") as search:
        after = [trial.pid for trial in search.trials()]
    assert second.verdict == first.verdict
    assert after == before


INLINED = """
import torch
def g(t, x):
    return x * t.sin()

def f(t, x):
    return torch.vmap(torch.func.jacfwd(g, 0), (0, 0))(t, x)

f(torch.ones(4), torch.ones(4, 3))
torch.compile(f)(torch.ones(4), torch.ones(4, 3))
"""


@pytest.mark.skipif(torch.__version__ >= "2.15", reason="this torch traces it")
def test_a_frame_is_named_and_not_what_it_inlined(bisected: Bisected) -> None:
    """Dynamo fails to trace the forward-mode derivative under vmap. Left to Python, `f` would have vmap compiled."""
    verdict = bisected(INLINED)
    assert (verdict.verdict, verdict.rung) == ("found", "eager")
    assert [(c.group, c.name) for c in verdict.culprits] == [("frame", "f")]


# The code after each graph break is a frame of its own, which there is only if the one before it is compiled.
AFTER_BREAKS = """
import torch

def f(x):
    print("one")
    y = x + 1
    print("two")
    return torch.as_tensor([y.mean(), y.max()])

f(torch.arange(3.0))
torch.compile(f)(torch.arange(3.0))
"""


def test_what_follows_a_graph_break_is_the_same_function(bisected: Bisected, tmp_path: Path) -> None:
    verdict = bisected(AFTER_BREAKS)
    assert (verdict.verdict, verdict.rung) == ("found", "eager")
    (culprit,) = verdict.culprits
    assert (culprit.group, culprit.name) == ("frame", "f")
    assert culprit.lines == ((str(tmp_path / "program.py"), 8),)
    assert not any("together" in note for note in verdict.notes)
    assert verdict.confirmed[0] == "with exactly f off it passes"


MEMBERS = """
import torch

class Box:
    def __eq__(self, other):
        return True
    def __hash__(self):
        return 1

class Merger:
    def count(self, x):
        x = x.sin()
        return x * len({Box(), Box()})
    def __call__(self, x):
        x = x + 1
        return self.count(x)

x = torch.ones(3)
assert torch.equal(torch.compile(Merger())(x), Merger()(x))
"""


def test_an_object_is_named_and_the_function_that_it_calls(bisected: Bisected) -> None:
    """Dynamo compares members of a set by identity. Functions that only run once others are left to Python are off."""
    verdict = bisected(MEMBERS)
    if verdict.verdict == "passes" and not torch.__version__.startswith("2.13."):
        pytest.skip("this torch compiles it")
    assert [(c.group, c.name) for c in verdict.culprits] == [("frame", "Merger.__call__")]
    shown = [MEMBERS.splitlines()[line - 1].strip() for c in verdict.culprits for _, line in c.lines]
    assert shown == ["def __call__(self, x):", "def count(self, x):"]
    assert verdict.confirmed[-1] == "count, which it calls, fails too if it is compiled by itself"


def test_an_object_with_fullgraph_is_run_uncompiled_where_it_is_off(bisected: Bisected) -> None:
    """torch ends a call with fullgraph=True of which no frame is compiled."""
    body = "    def __call__(self, n, x):\n        torch._dynamo.graph_break()\n        return x * n\n"
    call = "torch.compile(functools.partial(A(), 3), fullgraph=True, backend='eager')(torch.ones(3))\n"
    verdict = bisected(f"import functools\nimport torch\nclass A:\n{body}{call}")
    assert [(c.group, c.name) for c in verdict.culprits] == [("frame", "A.__call__")], verdict.notes


@pytest.mark.parametrize(("tanh", "is_rounding"), [("tanh(x)", True), ("tanh(tanh(x))", False)])
def test_a_comparison_that_fails_by_rounding_is_called_that(bisected: Bisected, tanh: str, is_rounding: bool) -> None:
    verdict = bisected(ROUNDED.format(tanh=tanh))
    assert (verdict.verdict, verdict.rung) == ("found", "inductor")
    assert any("none is wrong by more than rounding" in note for note in verdict.notes) == is_rounding
    assert any("further off than rounding explains" in note for note in verdict.notes) != is_rounding
    assert not verdict.other_failures


# `aten._local_scalar_dense` returns a number, and a kernel that computes no tensor cannot be ATen's.
NUMBER = """
import torch

torch._dynamo.config.capture_scalar_outputs = True
torch._inductor.config.fx_graph_cache = False

def f(x):
    y = x * 0.5 if x.sum().item() > 0.5 else x * 1.5
    return torch.tanh(y) * 1.1

import torch._inductor.lowering as lowering
tanh = lowering.lowerings[torch.ops.aten.tanh.default]
lowering.lowerings[torch.ops.aten.tanh.default] = lambda x: tanh(tanh(x))
x = torch.linspace(0.1, 0.2, 8)
torch.testing.assert_close(torch.compile(f)(x), f(x))
"""


def test_a_number_among_the_values_of_a_graph_is_not_switched_off(bisected: Bisected) -> None:
    verdict = bisected(NUMBER)
    assert [(c.group, c.name) for c in verdict.culprits] == [("lowering", "tanh")]
    assert not verdict.other_failures


def test_a_difference_of_random_numbers_is_called_by_its_name(bisected: Bisected) -> None:
    source = "import torch\ndef f(x):\n    torch.manual_seed(0)\n    return torch.nn.functional.dropout(x)\n"
    verdict = bisected(source + "x = torch.ones(64)\ntorch.testing.assert_close(torch.compile(f)(x), f(x))\n")
    assert verdict.verdict == "found"
    assert any("fallback_random" in note for note in verdict.notes)


# Two parts of Inductor each replace a view by its base. Switching off either of them changes nothing.
VIEW = """
import torch

def f(x):
    y = x * 2
    v = y.view(3, 4)
    v.resize_(1)
    return y, v

assert [t.numel() for t in torch.compile(f)(torch.ones(3, 4))] == [12, 1]
"""


@pytest.mark.slow
def test_a_failure_that_no_part_of_inductor_explains_is_the_graphs(bisected: Bisected) -> None:
    verdict = bisected(VIEW)
    assert (verdict.verdict, verdict.rung) == ("found", "inductor")
    assert [(culprit.group, culprit.name) for culprit in verdict.culprits] == [("graph", "0/0")]
    assert len(verdict.confirmed) >= 2
