"""Overlays: changed functions of installed packages, put in place at import, and left out where they do not fit."""

from __future__ import annotations

import builtins
import hashlib
import importlib
import inspect
import json
import os
import subprocess
import sys
import traceback
import types
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dynadiag.fixes import overlay_file
from dynadiag.fixes.candidate import Candidate
from dynadiag.fixes.edits import Edit
from dynadiag.fixes.fix_result import Fix, FixResult
from dynadiag.fixes.overlay_file import NotOfFunctions, changes_of, overlay_text, package_diff
from dynadiag.fixes.project import Project
from dynadiag.overlay_runtime import Change, changed_text, functions_in
from dynadiag.trial.program import Program
from tests.fixes.build import problem_at
from tests.fixes.library import SCALE, install_package

pytestmark = pytest.mark.usefixtures("forked_interpreters")

NAME = "site-packages/fakelib/scale.py"
DYNADIAG = [sys.executable, "-m", "dynadiag"]
SET_UP = """import logging
import threading

import torch
from torch import nn

LOCK = threading.Lock()
logger = logging.getLogger(__name__)


def install(module):
    logger.warning("it is set up")
    module.factor = 2


def set_up(model):
    # Is it there?
    if getattr(model, "is_set_up", False):
        return
    with LOCK:
        install(model.linear)
        model.is_set_up = True


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        set_up(self)
        return self.linear(x) * self.linear.factor
"""
PROGRAM = """import torch
from fakelib.scale import Scale

torch.manual_seed(0)
print("begin")
model = torch.compile(Scale(), backend="eager")
out = model(torch.randn(3, 4))
out.sum().backward()
print(out.sum().item())
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """A project beside an installed package, which this process can import."""
    place = install_package(tmp_path, {"__init__.py": "", "scale.py": SCALE})
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "program.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(str(place))
    overlay_file._distributions.cache_clear()
    before, finders = set(sys.modules), list(sys.meta_path)
    made = Project.of(Program(str(tmp_path / "program" / "program.py")))
    assert made.name(str(place / "fakelib" / "scale.py")) == NAME
    yield made
    sys.meta_path[:] = finders
    for name in [name for name in sys.modules if name.startswith(("fakelib", "overlay")) and name not in before]:
        del sys.modules[name]
    overlay_file._distributions.cache_clear()


def edit(old: str, new: str, text: str = SCALE) -> Edit:
    start = text.index(old)
    return Edit(NAME, start, start + len(old), new)


ITEM = edit("n = y.abs().max().item()", "n = y.abs().max().detach()")
HELPER = edit("class Scale", "def _helper(x):\n    return x\n\n\nclass Scale")


def written(project: Project, *edits: Edit) -> types.ModuleType:
    """The overlay of these edits, imported."""
    text = overlay_text(tuple(changes_of(project, edits)), project, edits, ("* why",))
    (project.root / "overlay.py").write_text(text)
    return importlib.import_module("overlay")


def test_the_header_has_each_change_with_all_that_it_is_for(project: Project) -> None:
    problems = [problem_at(SCALE, each, file=NAME) for each in ("y.abs()", "n = y", "return 1")]
    made = [Candidate("keep it", "source", edits, "a reason") for edits in ((ITEM,), (ITEM,), (HELPER,))]
    fixes = tuple(Fix(*each) for each in zip(problems, made, strict=True))
    header = FixResult(fixes, (ITEM, HELPER), {}, None).overlay(project).partition("---")[0]
    change = "* keep it\n{}  right because a reason\n"
    lines = ["  for the break in f, line 14\n" * 2, "  for the break in f, line 18\n"]
    assert "".join(map(change.format, lines)) in header


def test_the_functions_of_a_module_have_their_decorators_and_classes() -> None:
    text = "if True:\n    @f\n    def a(): pass\n"
    text += "class C:\n    class D:\n        async def b(self):\n            def c(): pass\n"
    found = {name: source for name, _, _, source in functions_in(text)}
    assert found == {
        "a": "    @f\n    def a(): pass",
        "C.D.b": "        async def b(self):\n            def c(): pass",
    }


def test_an_overlay_changes_a_function_at_import_and_no_file(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(project.root))
    written(project, ITEM, HELPER)
    scale = importlib.import_module("fakelib.scale")
    assert "detach()" in inspect.getsource(scale.Scale.forward)
    assert inspect.getsource(scale.Scale.extra) == "    def extra(self):\n        return 1\n"
    assert scale._helper(3) == 3
    assert '\\\\ and "a quote"' in scale.Scale.forward.__doc__.replace("\\", "\\\\")
    assert project.path(NAME).read_text() == SCALE
    with pytest.raises(TypeError) as raised:
        scale.Scale().forward(None)
    assert "y = self.linear(x)" in "".join(traceback.format_exception(raised.value))


def test_an_import_that_a_decorator_needs_comes_before_it(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of Transformers imports torch inside its functions alone."""
    text = f'"""What it does."""\n\nfrom __future__ import annotations\n\n{SCALE}'
    project.path(NAME).write_text(text)
    monkeypatch.syspath_prepend(str(project.root))
    begin = edit("import torch", "import functools\nimport torch", text)
    extra = edit("    def extra(self)", "    @functools.cache\n    def extra(self)", text)
    written(project, begin, extra)
    imported, real = [], builtins.__import__

    def noted(name: str, globals_: Any = None, *rest: Any) -> types.ModuleType:
        imported.append((name, (globals_ or {}).get("__name__")))
        return real(name, globals_, *rest)

    monkeypatch.setattr(builtins, "__import__", noted)
    scale = importlib.import_module("fakelib.scale")
    assert imported.count(("functools", "fakelib.scale")) == 1
    assert scale.Scale.extra.cache_info().hits == 0
    assert scale.__doc__ == "What it does."
    assert inspect.findsource(scale.Scale)[1] == text.splitlines().index("class Scale(nn.Module):")


def test_with_another_torch_nothing_is_changed(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes use names that torch keeps to itself, and another torch may not have them."""
    monkeypatch.syspath_prepend(str(project.root))
    monkeypatch.setattr("dynadiag.overlay_runtime.torch_version", lambda: "1.9")
    with pytest.warns(RuntimeWarning, match=r"proved for torch 1\.9, and this is 2"):
        written(project, ITEM)
    assert ".item()" in inspect.getsource(importlib.import_module("fakelib.scale").Scale.forward)


@pytest.mark.parametrize("what", ["version", "source", "imported"])
def test_what_does_not_fit_is_left_as_it_is(project: Project, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.syspath_prepend(str(project.root))
    if what == "imported":
        importlib.import_module("fakelib.scale")
        with pytest.warns(RuntimeWarning, match="imported already"):
            written(project, ITEM)
    else:
        written(project, ITEM)
        place = project.path(NAME).parents[1]
        if what == "version":
            (place / "fakelib-1.2.dist-info" / "METADATA").write_text(
                "Metadata-Version: 2.1\nName: fakelib\nVersion: 2\n"
            )
        else:
            project.path(NAME).write_text(SCALE.replace("torch.relu(y / n)", "torch.tanh(y / n)"))
        importlib.invalidate_caches()
        with pytest.warns(
            RuntimeWarning, match="is left as it is: " + ("the changes" if what == "version" else "Scale")
        ):
            importlib.import_module("fakelib.scale")
    assert ".item()" in inspect.getsource(sys.modules["fakelib.scale"].Scale.forward)


def test_one_change_that_does_not_fit_leaves_out_the_others_of_its_module() -> None:
    version = importlib.metadata.version("torch")
    own = next(source for name, _, _, source in functions_in(SCALE) if name == "Scale.extra")
    digest = hashlib.sha256(own.encode()).hexdigest()
    right = Change("torch", version, "m", "Scale.extra", digest, "    def extra(self):\n        return 2")
    assert "return 2" in changed_text(SCALE, [right])
    for wrong in (right._replace(function="Scale.forward"), right._replace(sha256="0"), right._replace(version="0")):
        with pytest.raises(ValueError, match="proved for"):
            changed_text(SCALE, [right, wrong])


def test_lines_below_a_changed_function_keep_their_numbers() -> None:
    version = importlib.metadata.version("torch")
    own = next(source for name, _, _, source in functions_in(SCALE) if name == "Scale.forward")
    digest = hashlib.sha256(own.encode()).hexdigest()
    change = Change("torch", version, "m", "Scale.forward", digest, "    def forward(self, x):\n        return x")
    assert changed_text(SCALE, [change]).split("\n")[16] == "    def extra(self):"


def test_a_change_of_more_than_functions_is_refused(project: Project) -> None:
    for wrong in (edit("class Scale(nn.Module):", "class Scale(nn.Identity):"), edit("import torch\n", "")):
        with pytest.raises(NotOfFunctions):
            list(changes_of(project, [wrong]))
    (added,) = changes_of(project, [HELPER])
    assert (added.function, added.source) == ("", "def _helper(x):\n    return x")


def test_a_patch_for_the_package_has_its_paths(project: Project) -> None:
    assert package_diff(project, [ITEM]).startswith("--- a/fakelib/scale.py\n+++ b/fakelib/scale.py\n")


def test_libraries_that_stand_below_are_not_changed(project: Project) -> None:
    import numpy
    import torch

    assert project.name(torch.nn.__file__) is None
    assert project.name(numpy.__file__) is None
    assert replace(project).name(str(project.path(NAME))) == NAME


def test_fix_proves_a_change_of_a_package_and_run_uses_it(project: Project) -> None:
    place = project.path(NAME).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(place)}

    def dynadiag(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*DYNADIAG, *words], cwd=project.root, env=environment, capture_output=True, text=True, check=False
        )

    done = dynadiag("fix", "--json", "fix.json", "--overlay", "overlay.py", "program.py")
    assert done.returncode == 0, done.stderr
    document = json.loads((project.root / "fix.json").read_text())
    (fix,) = (entry for entry in document["fixes"] if entry["for"]["kind"] == "break")
    assert (fix["verdict"], fix["where"], fix["package"]) == ("proved", "library", "fakelib==1.2")
    assert document["overlay"] == str(project.root / "overlay.py")
    assert document["patch"] is None
    assert project.path(NAME).read_text() == SCALE
    plain = subprocess.run(
        [sys.executable, "program.py"], cwd=project.root, env=environment, capture_output=True, text=True, check=True
    )
    changed = dynadiag("run", "--overlay", "overlay.py", "program.py")
    assert (changed.returncode, changed.stdout) == (0, plain.stdout)
    environment["DYNADIAG_OVERLAY"] = str(project.root / "overlay.py")
    explained = dynadiag("explain", "--json", "-", "program.py")
    assert json.loads(explained.stdout)["break_count"] == 0
    assert dynadiag("run", "--overlay", "missing.py", "program.py").returncode == 2


@pytest.mark.parametrize("printed", ["out.shape", "os.getpid()"])
def test_the_unchanged_program_runs_again_only_where_what_it_prints_differs(project: Project, printed: str) -> None:
    """Trials begin at the first compiled call, where only packages are changed, and print less than a whole run."""
    (project.root / "program.py").write_text(f"import os\n{PROGRAM}print({printed})\n")
    environment = {**os.environ, "PYTHONPATH": str(project.path(NAME).parents[1])}
    command = [*DYNADIAG, "fix", "--overlay", "overlay.py", "program.py"]
    done = subprocess.run(command, cwd=project.root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    again = [line for line in done.stderr.splitlines() if "as written, again" in line or "as written, in a" in line]
    assert len(again) == (2 if "pid" in printed else 0)


def test_a_change_for_what_breaks_behind_another_break_alone_is_left_out(project: Project) -> None:
    project.path(NAME).write_text(SET_UP)
    environment = {**os.environ, "PYTHONPATH": str(project.path(NAME).parents[1])}
    command = [*DYNADIAG, "fix", "--json", "fix.json", "--overlay", "overlay.py", "program.py"]
    done = subprocess.run(command, cwd=project.root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads((project.root / "fix.json").read_text())
    fixes = [entry for entry in document["fixes"] if entry["for"]["kind"] == "break"]
    assert {(entry["title"], entry["verdict"]) for entry in fixes} == {("call `set_up` while torch compiles", "proved")}
    assert len(fixes) > 1
    changed = [line for line in fixes[0]["diff"].splitlines() if line.startswith(("+", "-"))]
    assert not any("logger" in line for line in changed)
    assert "+        _set_up(model)\n     # Is it there?\n" in fixes[0]["diff"]


def test_a_package_that_pip_put_beside_the_program_is_changed_by_an_overlay(tmp_path: Path) -> None:
    place = install_package(tmp_path, {"__init__.py": "", "scale.py": SCALE}, name="plugins")
    (tmp_path / "program.py").write_text(f"import sys\n\nsys.path.insert(0, 'plugins')\n{PROGRAM}")
    command = [*DYNADIAG, "fix", "--json", "fix.json", "--overlay", "overlay.py", "--apply", "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (fix,) = json.loads((tmp_path / "fix.json").read_text())["fixes"]
    assert (fix["verdict"], fix["where"], fix["package"]) == ("proved", "library", "fakelib==1.2")
    assert (place / "fakelib" / "scale.py").read_text() == SCALE
    command = [*DYNADIAG, "run", "--overlay", "overlay.py", "program.py"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (run.stdout.startswith("begin\n"), run.stderr) == (True, "")
