"""The benchmarks, as far as that needs no run of them."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BENCHMARKS = sorted((ROOT / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("file", BENCHMARKS, ids=lambda file: file.stem)
def test_what_a_benchmark_imports_of_ours_is_there(file: Path) -> None:
    missing = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and (ROOT / node.module.split(".")[0]).is_dir():
            folder = ROOT.joinpath(*node.module.split("."))
            source = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
            text = source.read_text() if source.exists() else ""
            modules = {one.stem for one in folder.glob("*")} if folder.is_dir() else set()
            named = {one.name for one in node.names if not re.search(rf"\b{one.name}\b", text)}
            missing += [f"{node.module}: {name}" for name in named - modules]
    assert missing == []


def test_no_benchmark_stands_for_a_module_that_others_import() -> None:
    """The folder of a program comes first on its path: `bisect.py` beside it broke `statistics`."""
    names = {file.stem for file in BENCHMARKS}
    assert not names & (sys.stdlib_module_names | {"coverage", "torch", "triton", "numpy", "textual"})


def test_make_bench_runs_those_that_need_no_input() -> None:
    excluded = re.search(r"TAKE_INPUT := ((?:.*\\\n)*.*)", (ROOT / "Makefile").read_text())
    assert excluded is not None
    needing = {file.stem for file in BENCHMARKS if _needs_input(ast.parse(file.read_text()))}
    others = {"mutants", "suite_cpu"}  # a target of its own, a plugin of pytest
    assert set(excluded[1].replace("\\", "").split()) == needing | others


def _needs_input(module: ast.Module) -> bool:
    """Whether a program has an argument that must be given."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            given = {word.arg: ast.unparse(word.value) for word in node.keywords}
            positional = not ast.unparse(node.args[0]).startswith("'-")
            optional = "default" in given or given.get("nargs") in ("'?'", "'*'")
            if (positional and not optional) or "required" in given:
                return True
    return False
