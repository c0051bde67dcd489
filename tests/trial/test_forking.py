"""Where trials are forked from: what a program does before is done once for all of them."""

from __future__ import annotations

from pathlib import Path

from dynadiag.bisect.bisector import HOOKS
from dynadiag.trial.plan import Plan, Switch
from dynadiag.trial.program import Program
from dynadiag.trial.runner import Runner

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


def test_what_comes_before_inductor_is_done_once_where_the_program_has_computed_before(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.format(folder=str(tmp_path)))
    base = Plan(rung="inductor", caches=False)
    off = Plan(rung="inductor", caches=False, switches=(Switch("lowering", True, ()),))
    with Runner(Program(str(file)), HOOKS) as runner:
        assert runner.start_forks(threads=2) is None
        assert runner.run(base).passed
        assert runner.run(off).passed
    assert (tmp_path / "started").read_text() == "x"
    assert (tmp_path / "traced").read_text() == "x"
