"""Patterns that a program registered with Inductor, written as source that registers them again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("forked_interpreters")

# The program registers in the three ways that there are, with passes of torch's and with one of its own. What it
# would be carried as is printed, and has to do the same in a process that knows nothing of the program.
PROGRAM = """
import torch
from dynadiag.torch_private import pattern_registrations as noted
noted.track_patterns()
from torch._inductor.fx_passes import joint_graph, post_grad
from torch._inductor.pattern_matcher import (
    CallFunction, Ignored, KeywordArg, MULTIPLE, PatternMatcherPass, fwd_only, register_graph_pattern,
    register_replacement,
)
aten = torch.ops.aten

relu = CallFunction(aten.relu.default, KeywordArg("x"), _users=MULTIPLE)

@register_graph_pattern(relu, pass_dict=joint_graph.patterns)
def relu_to_abs(match, x):
    match.replace_by_example(lambda x: aten.abs.default(x), [x])

def search(x, y):
    return aten.sub.Tensor(x, aten.exp.default(y))

def replacement(x, y):
    return aten.add.Tensor(x, y)

register_replacement(search, replacement, [torch.empty(2, 2), torch.empty(2, 2)], fwd_only, post_grad.pass_patterns[1])
own = PatternMatcherPass(pass_name="own")

@register_graph_pattern(CallFunction([aten.cos.default, aten.sin], KeywordArg("x")), pass_dict=own)
def _(match, x):
    match.replace_by_example(lambda x: aten.neg.default(x), [x])

class Pass:
    def __init__(self):
        self.own = own
    def __call__(self, graph):
        self.own.apply(graph)

torch._inductor.config.post_grad_custom_post_pass = Pass()
"""
WRITE = """
from dynadiag.minify.pattern_export import pattern_expression, registration_source, registered_patterns
from dynadiag.minify.torch_settings import TorchSetting, settings_source
from dynadiag.minify.source_export import SourceExporter
from functools import partial
carrier = SourceExporter(special_expression=pattern_expression)
settings = [TorchSetting(name, partial(registration_source, made), made.undo) for made, name in registered_patterns()]
value = lambda c: "torch._inductor.config.post_grad_custom_post_pass = " + c.expression(Pass())
settings.append(TorchSetting("own", value, lambda: None))
print(settings_source(settings, carrier))
for setting in settings:
    setting.undo()
torch._inductor.config.post_grad_custom_post_pass = None
"""
SHOW = """
f = torch.compile(lambda x: (torch.relu(x), x - x.exp(), x.cos(), x.sin()), options={"fx_graph_cache": False})
x = torch.full((2,), -0.5)
print([round(float(t[0]), 3) for t in f(x)])
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """(what the patterns are carried as, what the program printed after they were taken out again)."""
    folder = tmp_path_factory.mktemp("program")
    text, _, last = _run(folder / "program.py", PROGRAM + WRITE + SHOW).rstrip().rpartition("\n")
    return text, last


def _run(path: Path, text: str) -> str:
    path.write_text(text)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False, cwd=path.parent)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_carried_teaches_the_same(written: tuple[str, str], tmp_path: Path) -> None:
    text, _ = written
    assert _run(tmp_path / "repro.py", f"import torch\n{text}\n{SHOW}").splitlines()[-1] == "[0.5, -1.0, 0.5, 0.5]"


def test_what_is_undone_is_as_if_it_had_never_been_taught(written: tuple[str, str]) -> None:
    assert written[1] == "[0.0, -1.107, 0.878, -0.479]"


def test_each_handler_is_written_once_and_without_its_decorator(written: tuple[str, str]) -> None:
    text, _ = written
    assert text.count("def relu_to_abs(") == text.count("def _(") == 1
    assert "@register" not in text
    assert "_users=torch._inductor.pattern_matcher.MULTIPLE" in text
