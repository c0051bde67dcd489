"""Whole programs whose obvious fix is wrong: nothing wrong is proved, and the reason says what is wrong with it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dynadiag.fixes.fix_result import FixResult
from dynadiag.fixes.fix_search import find_fixes
from dynadiag.fixes.project import Project
from dynadiag.fixes.trials import HOOKS, Trials
from dynadiag.trial.program import Program
from dynadiag.trial.runner import Runner

pytestmark = pytest.mark.slow

HEAD = "import random\nimport torch\nfrom torch import nn\n\n\n"
NET = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
        self.calls = 0

    def forward(self, x):
"""
MAIN = """

def main():
    torch.manual_seed(1)
    model = Net()
    compiled = torch.compile(model, backend="aot_eager")
    for step in range(4):
        y = compiled(torch.randn(SIZE, 8))
        model.zero_grad()
        y.square().mean().backward()
        grad = sum(p.grad.abs().sum().item() for p in model.parameters() if p.grad is not None)
        print(f"{step} {y.sum().item():.5f} {grad:.5f} {model.calls}")


main()
"""


def program(body: str, head: str = "", size: str = "4") -> str:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    return HEAD + head + NET + lines + MAIN.replace("SIZE", size)


TRAPS = {
    # program: pieces of the reasons that are given
    "a side draws random numbers": (
        program("h = self.a(x)\nif h.mean() > 0:\n    h = nn.functional.dropout(h)\nreturn self.b(h)"),
        ["it prints", "the gradient of"],
    ),
    "the value ends a loop that counts": (
        program(
            "h = x\nfor _ in range(5):\n    h = torch.tanh(self.a(h))\n    self.calls += 1\n"
            "    if h.abs().max().item() < 0.5 or random.random() < 0.1:\n        break\nreturn self.b(h)"
        ),
        ["elsewhere instead", "`break` has an effect"],
    ),
    "the loop is over the size": (
        program(
            "h = x[0] * 0\nfor row in x.unbind(0):\n    h = torch.tanh(self.a(row) + h)\nreturn self.b(h)",
            "",
            "2 + step",
        ),
        ["the recompile is still there"],
    ),
}


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    with Runner(Program(str(tmp_path_factory.mktemp("none") / "none.py")), HOOKS, seed=0) as made:
        made.start_forks(1, checkpoint=False)
        yield made


def fixed(text: str, folder: Path, runner: Runner) -> FixResult:
    (folder / "program.py").write_text(text)
    before = Path.cwd()
    os.chdir(folder)
    try:
        project = Project.of(Program(str(folder / "program.py")))
        return find_fixes(Trials(project, runner, lambda *_: None), lambda _: None)
    finally:
        os.chdir(before)


@pytest.mark.parametrize("name", TRAPS)
def test_no_wrong_change_is_proved(name: str, tmp_path: Path, runner: Runner) -> None:
    text, reasons = TRAPS[name]
    result = fixed(text, tmp_path, runner)
    assert result.fixes
    assert [fix.candidate for fix in result.fixes if fix.candidate] == []
    given = [rejected.why for fix in result.fixes for rejected in fix.rejected]
    assert [piece for piece in reasons if not any(piece in why for why in given)] == [], given


@pytest.mark.parametrize(
    ("body", "change"),
    [
        (
            "h = self.a(x)\nif h.isnan().any():\n    raise ValueError('NaN')\nreturn self.b(h)",
            "raise on the condition in a function",
        ),
        (
            "self.calls += 1\nif self.calls % 2:\n    return self.a(x)\nreturn self.b(self.a(x))",
            "choose with `torch.where`",
        ),
    ],
    ids=["the value refuses the batch", "the counter takes a side"],
)
def test_a_change_that_keeps_what_a_where_or_a_buffer_loses_is_proved(
    body: str, change: str, tmp_path: Path, runner: Runner
) -> None:
    result = fixed(program(body), tmp_path, runner)
    assert all(fix.candidate for fix in result.fixes)
    assert any(change in fix.candidate.title for fix in result.fixes if fix.candidate)


def test_a_break_that_another_one_hides_is_mended_with_it(tmp_path: Path, runner: Runner) -> None:
    text = program(
        "for i in range(2):\n    x = torch.tanh(self.a(x))\n    print('layer', i)\n    torch._dynamo.graph_break()\n"
        "if x.sum() > 0:\n    x = x * 2\nreturn self.b(x)"
    )
    result = fixed(text, tmp_path, runner)
    assert result.evidence is not None
    assert (result.evidence.breaks[1], {fix.problem.gb_id for fix in result.fixes if fix.candidate}) == (
        0,
        {"GB0059", "GB0025", "GB0170"},
    )


def test_a_logger_of_a_function_that_is_inlined_logs_from_within_the_graph(tmp_path: Path, runner: Runner) -> None:
    head = (
        "import logging\nimport sys\n\nlogging.basicConfig(level=20, format='%(message)s', stream=sys.stdout)\n"
        "log = logging.getLogger('n')\n\n\n"
        "def half(h):\n    log.info('mean %.3f', h.mean().item())\n    return h / 2\n\n\n"
    )
    result = fixed(program("return self.b(half(self.a(x)))", head), tmp_path, runner)
    assert result.evidence is not None
    assert result.evidence.breaks[1] == 0
    assert "_in_graph" in result.changed["program.py"]


def test_a_split_further_down_takes_the_place_of_one_before(tmp_path: Path, runner: Runner) -> None:
    text = (
        "import torch\n\n\ndef f(x):\n    kept = bytearray(3)\n    return x + len(kept)\n\n\n"
        'print(torch.compile(f, backend="eager")(torch.ones(3)))\n'
    )
    result = fixed(text, tmp_path, runner)
    assert {fix.problem.gb_id for fix in result.fixes if fix.candidate} == {"GB0059", "GB6012"}
    assert result.evidence is not None
    assert result.evidence.breaks == (2, 0)


def test_a_flag_of_a_model_has_two_compiled_methods(tmp_path: Path, runner: Runner) -> None:
    text = program("h = self.a(x)\nif not self.training:\n    h = h * 2\nreturn self.b(h)")
    text = text.replace("self.training", "self.plain").replace("self.calls = 0", "self.calls, self.plain = 0, True")
    text = text.replace("        y = compiled", "        model.plain = step % 2 == 0\n        y = compiled")
    result = fixed(text, tmp_path, runner)
    assert result.evidence is not None
    assert result.evidence.recompiles == (1, 0)
    assert "if self.plain:" in result.changed["program.py"]
