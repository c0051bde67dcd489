"""The examples in docstrings are correct."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = [
    ".".join(file.relative_to(ROOT).with_suffix("").parts)
    for package in ("dynadiag", "minifier", "tui")
    for file in sorted((ROOT / package).rglob("*.py"))
    if ">>> " in file.read_text()
]


def test_there_are_examples() -> None:
    assert MODULES


@pytest.mark.parametrize("module", MODULES)
def test_examples_of_a_module(module: str) -> None:
    failed, tried = doctest.testmod(import_module(module))
    assert tried
    assert not failed
