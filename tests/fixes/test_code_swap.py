"""Changed functions of a module that a program has imported: they get their new code."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from dynadiag.fixes.observer import swap_module

TEXT = """import functools

LIMIT = 2


def plain(x):
    return x + 1


def setup(x):
    return None


def wrapped(function):
    @functools.wraps(function)
    def call(*args):
        return function(*args) + 10

    return call


class Base:
    def own(self):
        return "base"


class Model(Base):
    @wrapped
    def forward(self, x):
        return x * 2

    def own(self):
        return super().own() + "!"
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "swapped.py").write_text(TEXT)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("swapped")
    sys.modules.pop("swapped")


def swap(module: ModuleType, folder: Path, *changes: tuple[str, str]) -> None:
    text = TEXT
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    (folder / "copy.py").write_text(text)
    swap_module("swapped", str(folder / "copy.py"))


def test_functions_behind_decorators_and_in_use_are_changed(module: ModuleType, tmp_path: Path) -> None:
    model, plain = module.Model(), module.plain
    swap(module, tmp_path, ("x + 1", "x + LIMIT"), ("x * 2", "x * 3"), ('"!"', '"?"'), ("+ 10", "+ 20"))
    assert (plain(1), model.forward(1), model.own()) == (3, 23, "base?")
    assert plain.__code__.co_filename == str(tmp_path / "copy.py")


def test_new_statements_run_and_others_do_not(module: ModuleType, tmp_path: Path) -> None:
    vars(module)["LIMIT"] = 7
    swap(module, tmp_path, ("x + 1", "_more(x)"), ("def plain", "def _more(x):\n    return x + LIMIT\n\n\ndef plain"))
    assert module.plain(1) == 8


def test_a_statement_marks_a_function(module: ModuleType, tmp_path: Path) -> None:
    mark = "import torch\n\ntorch._dynamo.assume_constant_result(setup)\n\n\ndef wrapped"
    swap(module, tmp_path, ("def wrapped", mark))
    assert module.setup._dynamo_marked_constant
    assert not hasattr(module.plain, "_dynamo_marked_constant")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def plain(x):", "def plain(x, y):"),
        ("return function(*args) + 10", "return 10"),
        ("def setup", "@wrapped\ndef setup"),
    ],
)
def test_what_cannot_be_put_in_is_refused(module: ModuleType, tmp_path: Path, old: str, new: str) -> None:
    with pytest.raises(RuntimeError, match="while the program runs"):
        swap(module, tmp_path, (old, new))
