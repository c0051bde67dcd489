"""A recording knows which of its files are a library's, wherever pip put it, and wherever the recording is read."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import dynadiag
from dynadiag.capture.loaded_packages import packages_loaded_since
from dynadiag.explanation.explanation import explain
from dynadiag.explanation.source import package_files
from tests.fixes.library import SCALE, install_package

MAIN = """
import torch
from fakelib.scale import Scale


def step(model, x):
    return model(x) + 1
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of a program whose library is in the folder `plugins`."""
    place = install_package(tmp_path, {"__init__.py": "", "scale.py": SCALE}, name="plugins")
    (tmp_path / "scaling_main.py").write_text(MAIN)
    for folder in (place, tmp_path):
        monkeypatch.syspath_prepend(str(folder))
    for name in ("scaling_main", "fakelib", "fakelib.scale"):
        monkeypatch.setitem(sys.modules, name, None)  # taken out again at the end
        del sys.modules[name]
    return importlib.import_module("scaling_main")


@pytest.mark.parametrize("source", [True, False])
def test_a_break_in_a_library_is_the_librarys_after_the_library_is_gone(
    source: bool, tmp_path: Path, program: ModuleType
) -> None:
    torch._dynamo.reset()
    with torch.no_grad(), dynadiag.record(tmp_path / "run.dynadiag", source=source):
        torch.compile(program.step, backend="eager")(program.Scale(), torch.ones(2, 4))
    shutil.rmtree(tmp_path / "plugins")
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        scale = str(tmp_path / "plugins/fakelib/scale.py")
        assert package_files(recording).listed[scale] == "fakelib/scale.py"
        (found,) = explain(recording).findings
    assert (found.span.file, found.owner) == (scale, "fakelib")
    assert found.entry is not None
    assert (found.entry.file, found.entry.line) == (str(tmp_path / "scaling_main.py"), 7)


def test_each_module_is_looked_at_once_and_none_is_asked(program: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    class Lazy(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise AssertionError(f"asked for {name}")

    monkeypatch.setitem(sys.modules, "lazy_module", Lazy("lazy_module"))
    monkeypatch.setitem(sys.modules, "no_module", 3)
    seen = set[str]()
    assert sorted(packages_loaded_since(seen).values()) == ["fakelib/__init__.py", "fakelib/scale.py"]
    assert packages_loaded_since(seen) == {}
