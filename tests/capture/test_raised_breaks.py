"""Breaks that torch raises before it traces anything: only the exception that ends the program reports them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo.config

import dynadiag
from dynadiag.recording.records import Break
from tests.capture.runs import Bench, assert_undisturbed

pytestmark = pytest.mark.usefixtures("forked_interpreters")

PROGRAM = """
    import torch

    @torch.compile(backend="eager", fullgraph=True)
    def numbers(x):
        yield x + 1

    print(sum(numbers(torch.ones(3))))
"""


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def met(folder: Path, call: Callable[[], Any]) -> list[Break]:
    with suppress(Exception), dynadiag.record(folder / "run.dynadiag"):
        call()
    with dynadiag.open(folder / "run.dynadiag") as recording:
        return list(recording.breaks())


def numbers(x: torch.Tensor) -> Iterator[torch.Tensor]:
    yield x + 1


def grows(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def test_a_generator_function_is_a_break_at_its_definition(tmp_path: Path) -> None:
    (found,) = met(tmp_path, lambda: torch.compile(numbers, backend="eager", fullgraph=True)(torch.ones(3)))
    assert (found.gb_id, found.fatal, found.function, found.compile_id) == ("GB0003", True, "numbers", "-")
    head = "def numbers(x: torch.Tensor) -> Iterator[torch.Tensor]"
    assert (found.span.line, found.span.column) == (numbers.__code__.co_firstlineno, 0)
    assert (found.span.end_line, found.span.end_column) == (found.span.line, len(head))
    assert found.user_stack[-1].file == __file__


def test_the_limit_of_recompiles_is_one_where_it_is_raised(tmp_path: Path) -> None:
    def calls() -> None:
        fn = torch.compile(grows, backend="eager", fullgraph=True)
        for dtype in (torch.float32, torch.float64, torch.int64):
            fn(torch.ones(3, dtype=dtype))

    with torch._dynamo.config.patch(recompile_limit=2):
        (found,) = met(tmp_path, calls)
    assert (found.gb_id, found.fatal, found.function, found.compile_id) == ("GB0039", True, "grows", "0/2")
    assert found.span.line == grows.__code__.co_firstlineno


def test_an_exception_of_the_programs_own_is_no_break(tmp_path: Path) -> None:
    def fails() -> None:
        torch.compile(grows, backend="eager", fullgraph=True)(torch.ones(3))
        raise ValueError("mine")

    assert met(tmp_path, fails) == []


def test_a_traced_break_is_told_once(tmp_path: Path) -> None:
    def breaks(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x

    assert len(met(tmp_path, lambda: torch.compile(breaks, backend="eager", fullgraph=True)(torch.ones(3)))) == 1


def test_a_recompile_that_is_an_exception_has_its_reason(tmp_path: Path) -> None:
    def calls() -> None:
        fn = torch.compile(grows, backend="eager")
        fn(torch.ones(3))
        fn(torch.ones(3, dtype=torch.float64))

    with torch._dynamo.config.patch(error_on_recompile=True):
        assert met(tmp_path, calls) == []
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        (found,) = recording.recompiles()
    (reason,) = found.reasons
    assert (found.compile_id, found.function, reason.against) == ("0/1", "grows", "0/0")
    assert (reason.source, reason.was, reason.now) == ("x.dtype", "torch.float32", "torch.float64") or reason.guard


def test_a_raised_break_names_the_call(tmp_path: Path) -> None:
    def breaks(x: torch.Tensor) -> torch.Tensor:
        return x @ torch.ones(4, 4)

    (found,) = met(tmp_path, lambda: torch.compile(breaks, backend="eager")(torch.ones(3)))
    assert found.fatal
    assert [frame.function for frame in found.user_stack][-3:] == ["met", "<lambda>", "breaks"]


def test_a_program_that_ends_so_says_it(tmp_path: Path) -> None:
    run = assert_undisturbed(Bench(tmp_path, PROGRAM))
    (found,) = run.document["breaks"]
    assert (found["gb_id"], found["line"], found["function"]) == ("GB0003", 4, "numbers")
    assert "def numbers(x):" in run.out
