"""`dynadiag fix` from outside: a program with breaks, its patch applied, and the reason for a rejected change."""

from __future__ import annotations

import importlib
import io
import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import dynadiag
from dynadiag.__main__ import main
from dynadiag.commands.fix import apply_edits
from dynadiag.errors import DynadiagError
from dynadiag.fixes.candidate import Candidate, Rewrite
from dynadiag.fixes.fix_report import FixDocument, FixEntry, FixReport, ProblemPlace
from dynadiag.fixes.fix_search import Cause, _recompiled_instead, _Search
from dynadiag.fixes.pickled_call import _with_cells_named
from dynadiag.fixes.problems import FixProblem, RunSummary
from dynadiag.fixes.project import Project
from dynadiag.fixes.rewrites import CATALOGUE
from dynadiag.fixes.trials import runner_of
from dynadiag.fixes.variants import variant_names
from dynadiag.recording.records import Span
from dynadiag.trial.program import Program
from dynadiag.trial.reference_run import ReplayableCall

pytestmark = pytest.mark.usefixtures("forked_interpreters")

PROGRAM = '''"""A step with a print and a branch."""
import torch


def step(a, b, k):
    s = (a - b).square().sum()
    print("rows", a.shape[0])
    if s > 0:
        e = k * torch.exp(-s.sqrt())
    else:
        e = s * k
    return e


def main():
    torch.manual_seed(0)
    compiled = torch.compile(step, backend="eager")
    k = torch.tensor(1.5, requires_grad=True)
    a, b = torch.randn(3, 2, requires_grad=True), torch.randn(3, 2)
    for other in (b, a.detach()):
        compiled(a, other, k).backward()
        print(f"{a.grad.sum().item():.5f} {k.grad.item():.5f}")


if __name__ == "__main__":
    main()
'''


def fix(program: str, folder: Path, *options: str) -> tuple[int, dict[str, Any], Path]:
    (folder / "program.py").write_text(program)
    document, patch = folder / "fix.json", folder / "fix.patch"
    files = ["--json", str(document), "-o", str(patch), "--recording", str(folder / "fix.dynadiag")]
    code = main(["fix", *files, *options, str(folder / "program.py")])
    return code, json.loads(document.read_text()), patch


@pytest.mark.skipif(shutil.which("patch") is None, reason="no `patch` here")
def test_a_proved_patch_removes_the_breaks_and_changes_nothing_else(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, document, patch = fix(PROGRAM, tmp_path)
    assert (code, [one["verdict"] for one in document["fixes"]]) == (0, ["proved", "proved"])
    assert (tmp_path / "program.py").read_text() == PROGRAM
    assert document["evidence"]["breaks"] == [2, 0]
    assert document["evidence"]["results"] == document["evidence"]["gradients"] == "same"
    assert not any(path.name.startswith("dynadiag-") for path in tmp_path.iterdir())
    before = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, check=True)
    subprocess.run(["patch", "-p1", "-s", "-i", str(patch)], cwd=tmp_path, check=True)
    after = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, check=True)
    assert before.stdout == after.stdout
    assert "torch.where" in (tmp_path / "program.py").read_text()
    assert "2 of 2 causes have a proved fix" in capfd.readouterr().out


def _broken(*_: object) -> Any:
    raise KeyError("place")


def test_a_call_is_fixed_from_python_and_a_terminal_shows_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "program_to_fix.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(tmp_path)
    step = importlib.import_module("program_to_fix").step
    monkeypatch.setattr("dynadiag.fixes.fix_search.CATALOGUE", (Rewrite("broken", _broken), *CATALOGUE))
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    report = dynadiag.fix(step, torch.ones(3, 2), torch.zeros(3, 2), torch.tensor(1.5))
    assert "trial 2: " in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert "2 of 2 causes have a proved fix" in str(report)
    assert "not: broken: a fault of dynadiag, please report it: KeyError: 'place'\n" in str(report)
    assert "torch.where(condition, " in report.diff
    assert (tmp_path / "program_to_fix.py").read_text() == PROGRAM


def test_a_change_of_a_cell_is_named_by_the_cell_and_shown_in_colours(tmp_path: Path) -> None:
    problem = ProblemPlace("break", "GB0170", "0/0", str(tmp_path / "In[3].py"), 2)
    diff = "--- a/In[3].py\n-if a < b:\n+torch.where(a < b)\n"
    entry = FixEntry(problem, "proved", "choose", "source", diff, "breaks at In[3].py:7", None, ())
    document = FixDocument(
        torch=None, target="", folder="", fixes=(entry,), patch=None, evidence=None, trials=1, seconds=1
    )
    report = _with_cells_named(FixReport(document, diff), tmp_path)
    assert ".py" not in str(report)
    assert report.diff.startswith("--- a/In[3]\n")
    assert "break [GB0170] at In[3]:2\n" in repr(report)
    assert '<span style="color: #2a9a47">+torch.where(a &lt; b)</span>' in report._repr_html_()


def test_a_call_that_cannot_be_pickled_is_refused() -> None:
    with pytest.raises(DynadiagError, match="cannot be pickled"):
        dynadiag.fix(lambda x: x, torch.ones(1))


def test_a_program_that_fails_uncompiled_has_nothing_to_fix(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, document, _ = fix("raise ValueError('no')\n", tmp_path)
    assert (code, document["fixes"]) == (4, [])
    assert "ValueError: no" in capfd.readouterr().out


FAILS_COMPILED = """import torch


def backend(graph, inputs):
    raise ValueError("this backend has no idea")


print(torch.compile(torch.sin, backend=backend)(torch.ones(3)))
"""


def test_a_program_that_fails_compiled_alone_is_not_said_to_have_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, document, _ = fix(FAILS_COMPILED, tmp_path)
    assert (code, document["fixes"]) == (3, [])
    said = capfd.readouterr().out
    assert "fails only where it is compiled, with" in said
    assert "this backend has no idea" in said


ROWS_OF_TWO_FAIL = """import torch


@torch.compile(backend="eager")
def step(x):
    print("rows")
    return x * 2


step(torch.ones(3))
raise ValueError("two rows")
"""


def test_the_exception_of_a_program_that_fails_uncompiled_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, _, _ = fix(ROWS_OF_TWO_FAIL, tmp_path)
    assert code == 4
    assert "the program fails uncompiled: ValueError: two rows" in capfd.readouterr().out


DRAWS = """import torch


@torch.compile(backend="eager")
def step(x, t, generator):
    noise = torch.randn(3, generator=generator)
    return (x + noise) * t


generator = torch.Generator().manual_seed(0)
for t in (2, 3, 4, 5):
    print(step(torch.ones(3), t, generator).sum().item())
"""


def test_each_run_of_a_call_draws_the_same_numbers_of_a_generator_that_it_is_given(tmp_path: Path) -> None:
    _, document, _ = fix(DRAWS, tmp_path)
    entry = next(each for each in document["fixes"] if each["for"]["kind"] == "recompile")
    assert not any("elements differ" in each["why"] for each in entry["rejected"])
    assert entry["verdict"] == "proved"


LOADS = """import torch
from torch.utils.data import DataLoader, Dataset


@torch.compile(backend="eager")
def double(x):
    return x * 2


class Rows(Dataset):
    def __len__(self):
        return 5

    def __getitem__(self, index):
        return double(torch.ones(4))


@torch.compile(backend="eager")
def step(x):
    return x + 1


if __name__ == "__main__":
    for batch in DataLoader(Rows(), batch_size=2, num_workers=1, multiprocessing_context="fork"):
        print(step(batch + torch.zeros(4)).sum().item())
    for size in (3, 4, 5):
        print(step(torch.ones(size, 3)).sum().item())
"""


def test_calls_of_a_worker_that_loads_data_are_no_calls_of_the_program(tmp_path: Path) -> None:
    _, document, _ = fix(LOADS, tmp_path)
    said = json.dumps(document["fixes"])
    assert "shape" not in said
    assert "compiled call" not in said


def test_a_ragged_size_of_a_nested_tensor_is_left_as_it_is() -> None:
    rows = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=torch.jagged)
    names = variant_names(ReplayableCall(torch.sin, (rows,), {}))
    assert {name for name in names if name.startswith("size ")} >= {"size 4 to 5"}
    assert not any("j" in name for name in names if name.startswith("size "))


SWITCHED = """import torch


@torch.compile(backend="eager")
def step(x, a, b):
    return x * a + b


for grad in (False, True):
    a, b = torch.ones(3, requires_grad=grad), torch.ones(3, requires_grad=grad)
    print(step(torch.ones(3), a, b).sum().item())
"""


def test_what_is_told_alike_of_several_causes_of_a_recompile_is_told_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _, document, _ = fix(SWITCHED, tmp_path)
    assert len(document["fixes"]) == 2
    said = capfd.readouterr().out
    assert said.count("recompile at ") == 1
    assert "  why: a.requires_grad of step changes\n  why: b.requires_grad of step changes\n" in said


REFUSES = """import torch
from torch._subclasses.fake_tensor import DataDependentOutputException


def backend(graph, inputs):
    raise DataDependentOutputException(torch.ops.aten.nonzero.default)


print(torch.compile(torch.sin, backend=backend)(torch.ones(3)))
"""


def test_a_cause_without_a_change_is_told_with_what_torch_says_of_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _, document, _ = fix(REFUSES, tmp_path)
    (entry,) = document["fixes"]
    said = "Backend compiler `backend` failed with aten.nonzero.default. Adding a graph break."
    assert (entry["verdict"], entry["why"]) == ("none", f"Backend compiler exception. {said}")
    assert f"  why: Backend compiler exception. {said}\n" in capfd.readouterr().out


ROWS = """import torch


def step(x):
    print(f"rows {x.shape[0]}")
    return x * 2


def main():
    compiled = torch.compile(step, backend="eager")
    for n in (3, 4, 5):
        x = torch.ones(n, 2)
        print(compiled(x).sum().item())


if __name__ == "__main__":
    main()
"""


def test_a_setting_that_a_later_change_makes_needless_is_taken_back(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, document, patch = fix(ROWS, tmp_path)
    assert (code, document["evidence"]["breaks"], document["evidence"]["recompiles"]) == (0, [1, 0], [3, 0])
    assert "torch._higher_order_ops.print" in patch.read_text()
    assert "reorderable_logging_functions" not in patch.read_text()
    assert "+    torch._higher_order_ops.print(" in capfd.readouterr().out


FORGOTTEN = """import warnings

import torch


def inner(x):
    warnings.warn("slow")
    kept = x[x > 0.5]
    return kept.sum() / kept.numel()


@torch.compile(backend="eager")
def step(x):
    return x * inner(x)


print(step(torch.arange(8.0)).sum())
"""


def test_a_warning_that_torch_would_forget_without_a_break_is_given_in_the_graph(tmp_path: Path) -> None:
    code, document, patch = fix(FORGOTTEN, tmp_path)
    assert (code, document["evidence"]["breaks"]) == (0, [2, 0])
    assert "(_ORDER" in patch.read_text()


LOGS_FIRST = """import logging
import sys

import torch

logging.basicConfig(level="INFO", format="%(message)s", stream=sys.stdout)
log = logging.getLogger("step")


@torch.compile(backend="eager")
def step(image, tokens):
    y = image.sin()
    log.info("a batch of %d", image.shape[0])
    print(f"tokens {tokens.shape[0]}")
    return y.sum() * tokens


for length in (4, 5, 6):
    print(step(torch.ones(3), torch.ones(length)).sum().item())
"""


def test_what_is_shown_after_the_graph_moves_into_it_for_a_recompile(tmp_path: Path) -> None:
    """The graph prints the size that changes, so that what comes before it is shown there as well."""
    code, document, patch = fix(LOGS_FIRST, tmp_path)
    assert (code, document["evidence"]["breaks"], document["evidence"]["recompiles"]) == (0, [2, 0], [3, 0])
    assert "(_ORDER" in patch.read_text()


TWO_WAITS = """import time

import torch


def step(x):
    y = x * 2
    time.sleep(0)
    time.sleep(0)
    return y + 1


compiled = torch.compile(step, backend="eager")
for _ in range(3):
    print(compiled(torch.ones(3)).sum().item())
"""


def test_what_is_compiled_between_two_breaks_stays_compiled(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, document, patch = fix(TWO_WAITS, tmp_path)
    assert (code, document["evidence"]["graphs"]) == (0, [2, 1])
    assert "+def step(x):" not in patch.read_text()
    assert "     y = x * 2" in patch.read_text()
    assert "it compiles less: 3 operators run in graphs instead of 6" in capfd.readouterr().err


LIMIT = """import torch

torch._dynamo.config.recompile_limit = 2


def step(x, k):
    y = x.sin().cos() * 2
    print("between")
    return y * k


compiled = torch.compile(step, backend="eager", dynamic=False)
for k in range(2, 8):
    print(compiled(torch.ones(4), k).sum().item())
"""


def test_a_limit_of_recompiles_that_comes_with_one_graph_may_go_with_the_recompiles(tmp_path: Path) -> None:
    """In one graph the number guards what stood in front of the break as well."""
    code, document, _ = fix(LIMIT, tmp_path)
    assert (code, document["evidence"]["graphs"], document["evidence"]["recompiles"]) == (0, [3, 1], [2, 0])


def test_a_change_that_leaves_a_limit_of_recompiles_behind_is_no_fix(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    texts = LIMIT.replace("range(2, 8)", '["a", "bb", "ccc", "dddd", "eeeee", "ffffff"]').replace("y * k", "y * len(k)")
    _, document, patch = fix(texts, tmp_path)
    assert "torch gives up at a limit of recompiles" in capfd.readouterr().err
    assert (document["evidence"], patch.exists()) == (None, False)


def test_files_are_applied_all_or_none(tmp_path: Path) -> None:
    first, second = tmp_path / "first.py", tmp_path / "second.py"
    first.write_text("x = 1\n")
    second.write_text("y = 1\n")
    project = Project.of(Program(str(first)))
    sources = {path.name: path.read_text() for path in (first, second)}
    second.write_text("mine = 1\n")
    with pytest.raises(DynadiagError, match="was changed meanwhile"):
        apply_edits(project, sources, {"first.py": "x = 2\n", "second.py": "y = 2\n"})
    assert (first.read_text(), second.read_text()) == ("x = 1\n", "mine = 1\n")
    second.unlink()
    with pytest.raises(DynadiagError, match="was changed meanwhile"):
        apply_edits(project, sources, {"first.py": "x = 2\n", "second.py": "y = 2\n"})
    assert first.read_text() == "x = 1\n"


@pytest.mark.slow
def test_a_loss_in_low_precision_may_be_printed_with_another_last_digit(tmp_path: Path) -> None:
    """One graph rounds less often than two."""
    program = """import logging
import torch
torch.manual_seed(0)
log = logging.getLogger("train")

@torch.compile
def step(x):
    y = torch.tanh(x * 1.1) + x / 3
    y = torch.sin(y * 0.7) * y
    log.info("sin done")
    z = torch.exp(y * 0.3) * y - x / 7
    return (z * 1.3 - y / 9).float().mean()

for i in range(6):
    print(f"step {i}: loss {step(torch.randn(12, 64, dtype=torch.bfloat16)).item():.4g}")
"""
    code, document, _ = fix(program, tmp_path)
    assert (code, document["evidence"]["output"], document["evidence"]["breaks"]) == (0, "rounding", [1, 0])


@pytest.mark.parametrize(("name", "usual"), [("PYTHONHASHSEED", "0"), ("OMP_WAIT_POLICY", "PASSIVE")])
def test_trials_hash_and_wait_alike_unless_the_user_says_how(
    monkeypatch: pytest.MonkeyPatch, name: str, usual: str
) -> None:
    """A model may keep a hash, or loop over a set. Threads that spin while they wait make a call seem slower."""
    for own, used in ((None, usual), ("7", "7")):
        monkeypatch.delenv(name, raising=False)
        if own is not None:
            monkeypatch.setenv(name, own)
        assert runner_of(Program("program.py")).environment[name] == used


HIDDEN = """import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.notes = {}

    def note(self, name, value):
        self.notes[name] = max(self.notes.get(name, value), value)

    def forward(self, x):
        self.note("peak", x.max().item())
        return x * 2


net = torch.compile(Net(), backend="eager")
for n in range(3):
    print(net(torch.ones(4) + n).sum().item())
"""


def test_a_recompile_that_a_break_hid_is_told_as_left(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, document, _ = fix(HIDDEN, tmp_path)
    assert (code, document["evidence"]["breaks"]) == (0, [1, 0])
    (entry, *_) = document["left"]
    assert (entry["for"]["kind"], entry["verdict"]) == ("recompile", "none")
    told = capfd.readouterr().out.partition("all proved fixes together:")[2]
    assert "recompiles that only the changed program has, at its lines:\n\nrecompile at " in told
    assert "adds the key `'peak'` to `self.notes`" in told


def test_a_recompile_that_moves_to_a_function_of_another_name_is_not_gone() -> None:
    def summary(recompiles: int, *causes: str) -> SimpleNamespace:
        places = {cause: f"net.py:{9 + len(causes)}" for cause in causes}
        made = RunSummary(Counter(causes), places, breaks=0, recompiles=recompiles, graphs=1, largest=1)
        return SimpleNamespace(summary=made)

    step = "recompile Net.forward: value L['t']"
    before = summary(7, step, "recompile Net.forward: none L['cond']")
    problem = FixProblem("recompile", step, "net.py", Span("net.py", 3), "Net.forward", "0/1", "")
    moved: Any = SimpleNamespace(
        baseline=SimpleNamespace(recorded=before), recorded=summary(6, "recompile Net._forward_if: value L['t']")
    )
    assert _recompiled_instead(moved, problem) == "the changed program recompiles for it, too, at net.py:10"
    moved.recorded = summary(6, "recompile Net.forward: value L['other']")
    assert _recompiled_instead(moved, problem) is None
    moved.recorded = summary(7, "recompile Net.forward: value L['other']")
    assert "something else instead" in str(_recompiled_instead(moved, problem))


def test_what_is_gone_by_other_changes_gets_none_of_its_own() -> None:
    """A change that was rejected for another cause is tried again at last, and not where there is nothing to remove."""
    tried: list[str] = []

    def prove(problems: tuple[FixProblem, ...], *_: object) -> tuple[None, str]:
        tried.extend(each.identity for each in problems)
        return None, "not needed"

    def cause(identity: str) -> Cause:
        return Cause(FixProblem("recompile", identity, "net.py", Span("net.py", 3), "f", "0/1", ""), [])

    project: Any = SimpleNamespace(imported=frozenset())
    search = _Search(SimpleNamespace(project=project), print, SimpleNamespace(prove=prove))  # type: ignore[arg-type]
    left = RunSummary(Counter(["left"]), {}, breaks=0, recompiles=1, graphs=1, largest=1)
    search._whole = SimpleNamespace(recorded=SimpleNamespace(summary=left))  # type: ignore[assignment]
    search._behind = [(cause(identity), Candidate("c", "argument", (), "")) for identity in ("gone", "left")]
    search._add_kind("recompile")
    assert tried == ["left"]
