"""Which failed compiles are breaks, and whether torch raised them or left the frame to Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo.config

import dynadiag
from dynadiag.explanation.explanation import explain
from dynadiag.recording.records import Break
from dynadiag.torch_private import capture as torch_private


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def met(folder: Path, function: Callable[..., Any], **options: Any) -> list[Break]:
    """The breaks of one call of a compiled function, however it ends."""
    with dynadiag.record(folder / "run.dynadiag"), suppress(Exception):
        torch.compile(function, backend="eager", **options)(torch.ones(3))
    with dynadiag.open(folder / "run.dynadiag") as recording:
        return list(recording.breaks())


def line_of(function: Callable[..., Any]) -> int:
    return function.__code__.co_firstlineno


def fails_on_shapes(x: torch.Tensor) -> torch.Tensor:
    return x @ torch.ones(4, 4)


def branches_differ(x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: (a - 1, a), (x,))


def no_break_allowed_here(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    with torch._dynamo.error_on_graph_break(True):
        print("")  # noqa: T201 - it breaks the graph
    return y


def split_before_it_fails(x: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    return x @ torch.ones(4, 4)


@pytest.mark.parametrize(
    ("function", "below", "part"),
    [
        (fails_on_shapes, 1, "x @ torch.ones(4, 4)"),
        (branches_differ, 1, "torch.cond"),
        (no_break_allowed_here, 3, 'print("")'),
    ],
)
def test_a_break_that_is_raised_without_fullgraph_is_one(
    function: Callable[..., Any], below: int, part: str, tmp_path: Path
) -> None:
    (found,) = met(tmp_path, function)
    assert found.fatal
    assert found.gb_id is not None
    assert found.span.line == line_of(function) + below
    text = Path(__file__).read_text().splitlines()[found.span.line - 1]
    assert text[found.span.column : found.span.end_column].startswith(part)


def test_a_failure_that_torch_suppresses_is_no_exception(tmp_path: Path) -> None:
    with torch._dynamo.config.patch(suppress_errors=True):
        (found,) = met(tmp_path, fails_on_shapes)
    assert not found.fatal


def test_a_split_and_a_failure_after_it_are_two(tmp_path: Path) -> None:
    found = met(tmp_path, split_before_it_fails)
    assert [item.fatal for item in found] == [False, True]
    assert [item.span.line for item in found] == [line_of(split_before_it_fails) + n for n in (1, 2)]


def test_a_logged_break_that_fullgraph_raises_is_counted_once(tmp_path: Path) -> None:
    (found,) = met(tmp_path, split_before_it_fails, fullgraph=True)
    assert found.fatal
    assert found.gb_id == "GB0025"


def test_a_renamed_function_of_torchs_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ERROR_EMITTER", "START_EMITTER", "GRAPH_EMITTER", "GUARDS_EMITTER", "RECOMPILE_EMITTER"):
        function, local = getattr(torch_private, name)
        monkeypatch.setattr(torch_private, name, (f"{function}_renamed", local))
    monkeypatch.setattr(torch_private, "BREAK_EMITTERS", {})
    torch._dynamo.reset()

    def prints(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        print("half way")  # noqa: T201
        return y * 2

    with dynadiag.record(tmp_path / "run.dynadiag"):
        compiled = torch.compile(prints, backend="eager")
        compiled(torch.ones(3))
        compiled(torch.ones(4))
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        (note,) = explain(recording).notes
    words = ("columns of graph breaks", "source", "graphs as data", "lines of guards", "new values of failed guards")
    assert [word for word in words if word not in note] == []
