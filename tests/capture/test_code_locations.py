"""A callable without a function of its own is recorded under the name that the user gave it, not as torch's wrapper."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import dynadiag
from dynadiag.capture.code_locations import describe_callable
from dynadiag.recording.records import Compile, Recompile


class Scale:
    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.by

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was asked for")


def named(called: Any) -> tuple[str | None, str]:
    found = describe_callable(called, sys._getframe())
    return found["file"] and Path(found["file"]).name, found["function"]


CALLED = {  # by the name that it should have
    "Sequential.forward": (torch.nn.Sequential(torch.nn.ReLU()), "container.py"),
    "Scale.__call__": (Scale(2.0), "test_code_locations.py"),
    "partial(named)": (functools.partial(named), "test_code_locations.py"),
    "partial(Scale.__call__)": (functools.partial(Scale(2.0), None), "test_code_locations.py"),
    "gelu": (torch.nn.functional.gelu, "test_code_locations.py"),
}


@pytest.mark.parametrize("name", CALLED)
def test_by_what_a_call_runs_and_a_builtin_by_the_line_that_calls_it(name: str) -> None:
    called, file = CALLED[name]
    assert named(called) == (file, name)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def test_a_compile_and_a_recompile_carry_the_name(tmp_path: Path) -> None:
    with dynadiag.record(tmp_path / "run.dynadiag"):
        compiled = torch.compile(torch.nn.Sequential(torch.nn.ReLU()), backend="eager")
        compiled(torch.ones(2, 3))
        compiled(torch.ones(4, 3))
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        records: list[Compile | Recompile] = [*recording.compiles(), *recording.recompiles()]
    assert [item.function for item in records] == ["Sequential.forward"] * 3
    assert {Path(item.file or "").name for item in records} == {"container.py"}
