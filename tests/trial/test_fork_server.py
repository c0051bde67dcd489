"""The processes of trials: what comes before a fork is done once, and no process outlives its search."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dynadiag.bisection.bisector import HOOKS
from dynadiag.trial.plan import AS_WRITTEN, Plan, Switch
from dynadiag.trial.program import Program
from dynadiag.trial.runner import Runner
from dynadiag.trial.supervise import Limits
from tests.fixes.library import install_package
from tests.interpreters import warm

PROGRAM = """
from pathlib import Path
import torch
import torch._inductor.config as inductor

def counted(where):
    with Path({folder!r}, where).open("a") as file:
        file.write("x")

inductor.pre_grad_custom_pass = lambda graph: counted("traced")
x = torch.ones(64, 64)
before = x @ x + 1
counted("started")
torch.compile(lambda x: (x @ x).relu())(before)
"""


def test_dynamo_runs_once_for_trials_that_differ_in_inductor(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.format(folder=str(tmp_path)))
    base = Plan(rung="inductor", caches=False)
    off = Plan(rung="inductor", caches=False, switches=(Switch("lowering", True, ()),))
    with warm(), Runner(Program(str(file)), HOOKS) as runner:
        assert runner.start_forks(threads=2) is None
        assert runner.run(base).passed
        assert runner.run(off).passed
    assert (tmp_path / "started").read_text() == "x"
    # With a GPU Dynamo initializes CUDA, so the program cannot be stopped at its graph: each trial traces.
    times = 3 if torch.cuda.is_available() else 1
    assert (tmp_path / "traced").read_text() == "x" * times


COUNTS = """
import torch
from torch._dynamo.utils import counters
from torch._inductor import metrics
assert not counters, counters
torch.compile(lambda x: x.relu() + 1)(torch.ones(8))
assert metrics.generated_kernel_count == 1, metrics.generated_kernel_count
"""


def test_a_fork_counts_graphs_and_kernels_from_zero(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(COUNTS)
    with warm(), Runner(Program(str(file)), HOOKS) as runner:
        assert runner.start_forks(threads=2) is None
        assert runner.run(Plan(rung="inductor", caches=False)).passed


HANGS = """
import os, threading
from pathlib import Path
Path({file!r} + ".part").write_text(str(os.getpid()))
Path({file!r} + ".part").rename({file!r})
threading.Event().wait()
"""
SUPERVISOR = """
import sys
from dynadiag.trial.program import Program
from dynadiag.trial.runner import Runner
from dynadiag.trial.supervise import Limits
from tests.interpreters import warm
with Runner(Program(sys.argv[1])) as runner:
    runner.run_fresh()
"""


def test_a_program_that_hangs_does_not_outlive_the_search_that_was_killed(tmp_path: Path) -> None:
    told, program = tmp_path / "pid", tmp_path / "program.py"
    program.write_text(HANGS.format(file=str(told)))
    supervisor = subprocess.Popen([sys.executable, "-c", SUPERVISOR, str(program)])
    watched = os.pidfd_open(supervisor.pid)
    while not told.exists():
        assert not select.select([watched], [], [], 0.1)[0], "the supervisor ended"
    hanging = os.pidfd_open(int(told.read_text()))
    supervisor.send_signal(signal.SIGKILL)
    supervisor.wait()
    assert select.select([hanging], [], [], 60)[0]


def test_forks_work_without_a_cpp_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The zygote's own first compile fails. Forks work all the same."""
    monkeypatch.setenv("CXX", "/bin/false")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    program = tmp_path / "program.py"
    program.write_text("import torch\ntorch.compile(lambda x: x.sin())(torch.ones(3))\n")
    with Runner(Program(str(program)), HOOKS) as runner:
        assert runner.start_forks(threads=1) is None
        outcomes = [runner.run(Plan(rung, caches=False)) for rung in ("aot_eager", "inductor")]
    assert [outcome.passed for outcome in outcomes] == [True, False]


FAREWELLS = """
import atexit, weakref
from pathlib import Path
import torch

def said(word):
    with Path({file!r}).open("a") as file:
        file.write(word + " ")

class Kept:
    pass

kept = Kept()
weakref.finalize(kept, said, "finalizer")
atexit.register(said, "atexit")
said(str(sum(known.atexit for known in weakref.finalize._registry)))
torch.compile(lambda x: x.sin())(torch.ones(3))
"""


def test_a_fork_runs_the_programs_exit_functions_and_not_torchs(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(FAREWELLS.format(file=str(tmp_path / "said")))
    with warm(), Runner(Program(str(program)), HOOKS) as runner:
        assert runner.start_forks(threads=1) is None
        assert runner.run(Plan("eager", caches=False)).passed
    assert (tmp_path / "said").read_text().split() == ["1", "atexit", "finalizer"]


COMPILES = "import torch\ntorch.compile(lambda x: x + 1, backend='eager')(torch.ones(2))\n"
CLOCKS = [
    "import time\nstarted = time.monotonic()\n",
    "import os, time as clock\n",
    "from datetime import datetime\n",
    "if True:\n    from time import perf_counter\n",
    "import torch; import time\n",
]


@pytest.mark.parametrize("clock", [*CLOCKS, "import signal\nsignal.alarm(300)\n"])
def test_a_program_whose_time_runs_on_while_it_is_stopped_is_run_whole(tmp_path: Path, clock: str) -> None:
    """A fork from the middle of it would see the time that other trials took."""
    file = tmp_path / "program.py"
    file.write_text(clock + COMPILES)
    with warm(), Runner(Program(str(file)), HOOKS) as runner:
        reason = runner.start_forks(threads=1)
        assert runner.has_forks
        assert runner.run(Plan(rung="eager", caches=False)).passed
    assert reason is not None
    assert "alarm" in reason or "reads the clock (program.py)" in reason


@pytest.mark.parametrize("folder", ["site-packages", "plugins"])
def test_a_program_without_a_clock_is_stopped_at_its_first_call(tmp_path: Path, folder: str) -> None:
    """A package that is installed anywhere may read clocks: torch does."""
    file, packages = tmp_path / "program.py", install_package(tmp_path, {"reads.py": "import time\n"}, name=folder)
    installed = f"import sys\nsys.path.insert(0, {str(packages)!r})\nimport fakelib.reads\n"
    file.write_text("from __future__ import annotations\nruntime = 'import time'  # time\n" + installed + COMPILES)
    with warm(), Runner(Program(str(file)), HOOKS) as runner:
        assert runner.start_forks(threads=1) is None


def test_a_runner_that_shares_a_zygote_leaves_it_to_the_others(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import torch\n\ntorch.compile(torch.sin)(torch.ones(2))\n")
    program, plan = Program(str(tmp_path / "program.py")), Plan(rung="eager")
    with warm(), Runner(program, HOOKS) as runner:
        runner.start_forks(1, checkpoint=False)
        with runner.for_program(program) as other, runner.for_program(program) as further:
            other.stop_forks()  # as where its forks show another failure
            assert not other.has_forks
            assert further.run(plan).passed
            assert not further.notes
        assert runner.run(plan).passed
        assert not runner.notes


def test_trials_in_fresh_interpreters_run_while_others_do(tmp_path: Path) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    (tmp_path / "program.py").write_text(
        "import os\nimport sys\n\n"
        f"other = {second!r}\ntry:\n    os.mkdir({first!r})\n"
        f"except FileExistsError:\n    other = {first!r}\n    os.mkdir({second!r})\n"
        "while not os.path.exists(other):\n    pass\nsys.exit(3)\n"  # each ends only while the other runs
    )
    uncompiled = Plan(rung="uncompiled")
    with Runner(Program(str(tmp_path / "program.py")), HOOKS, Limits.default(60.0)) as runner:
        runner.start_fresh([AS_WRITTEN, uncompiled])
        found = [runner.run_fresh(plan).signature for plan in (AS_WRITTEN, uncompiled)]
    assert [each and each.type for each in found] == ["3", "3"]
