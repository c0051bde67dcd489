"""Exceptions that traced code raises: the raise is the cause, the rest is where the exception passed."""

from __future__ import annotations

import contextlib
import functools
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import dynadiag
from dynadiag.explanation.explanation import explain
from dynadiag.explanation.findings import Finding

LINES = Path(__file__).read_text().splitlines()


@contextlib.contextmanager
def manager() -> Iterator[None]:
    try:
        yield
    finally:
        len(LINES)


def decorated(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any) -> Any:
        try:
            return fn(*args)
        finally:
            len(args)

    return wrapper


def reads(config: Any, x: torch.Tensor) -> torch.Tensor:
    return x + config["key"]


@decorated
def passes(config: Any, x: torch.Tensor) -> torch.Tensor:
    with manager():
        return reads(config, x)


def cleans_up(config: Any, x: torch.Tensor) -> torch.Tensor:
    try:
        y = x + config["key"]
    finally:
        x.add_(1)
    return y


def cleans_up_around_a_block(config: Any, x: torch.Tensor) -> torch.Tensor:
    try:
        with contextlib.suppress(ValueError):
            y = reads(config, x)
    finally:
        x = x * 2
    return y


def findings(folder: Path, fn: Callable[..., Any]) -> tuple[Finding, ...]:
    torch._dynamo.reset()
    path = folder / "run.dynadiag"
    with pytest.raises(TypeError), dynadiag.record(path):
        torch.compile(fn, backend="eager")(None, torch.ones(3))
    with dynadiag.open(path) as recording:
        return tuple(item for item in explain(recording).findings if item.rule == "break")


def line(item: Finding) -> str:
    return LINES[(item.span.line or 0) - 1].strip()


def passed_lines(items: Iterable[Finding]) -> list[str]:
    spans = (fact.span for item in items for fact in item.evidence if fact.label == "passed")
    return [LINES[(span.line or 0) - 1].strip() for span in spans if span]


VERSION = tuple(map(int, torch.__version__.split(".")[:2]))
needs_tracebacks = pytest.mark.skipif(VERSION < (2, 12), reason="torch keeps no traceback of such an exception")
PASSED = ["return fn(*args)", "with manager():" if VERSION < (2, 15) else "return reads(config, x)"]


def test_the_raise_is_the_cause_of_what_it_passed(tmp_path: Path) -> None:
    cause, *passed = findings(tmp_path, passes)
    assert line(cause) == 'return x + config["key"]'
    assert cause.title.endswith("TypeError: 'NoneType' object is not subscriptable")
    assert {line(item) for item in passed} == set(PASSED)
    assert {(item.severity, item.caused_by is not None) for item in passed} == {("note", True)}
    assert sorted(passed_lines([cause])) == sorted(PASSED)


@needs_tracebacks
@pytest.mark.skipif(VERSION >= (2, 15), reason="torch blames the raise itself")
def test_the_raise_is_told_where_torch_blames_only_what_the_exception_passed(tmp_path: Path) -> None:
    (cause,) = findings(tmp_path, cleans_up)
    assert line(cause) == 'y = x + config["key"]'
    assert passed_lines([cause]) == ["x.add_(1)"]


def test_a_finally_that_runs_afterwards_is_not_where_the_exception_passed(tmp_path: Path) -> None:
    assert "x = x * 2" not in passed_lines(findings(tmp_path, cleans_up_around_a_block))


def test_what_is_met_while_an_exception_is_handled_follows_from_it(tmp_path: Path) -> None:
    def looks_up(config: Any, x: torch.Tensor) -> torch.Tensor:
        return x + config["key"]

    def tells(config: Any, x: torch.Tensor) -> torch.Tensor:
        try:
            return looks_up(config, x)
        except TypeError as error:
            print("failed:", error)  # noqa: T201
            raise

    compiled = torch.compile(tells, backend="eager")
    with dynadiag.record(tmp_path / "run.dynadiag"), contextlib.suppress(TypeError):
        compiled(None, torch.ones(2))
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        raised, told = (item for item in explain(recording).findings if item.rule == "break")
    assert "NoneType" in raised.title
    assert (told.id, told.severity, told.caused_by) == ("GB0059", "note", 0)


def names(x: torch.Tensor) -> torch.Tensor:
    doubled = x * 2
    name = uuid.uuid4().hex
    return doubled + len(name)


def test_an_exception_in_what_is_left_of_a_line_that_breaks_goes_with_the_break(tmp_path: Path) -> None:
    """torch makes a symbol of the number that another call of `uuid4` returned, and cannot write that as text."""
    torch._dynamo.reset()
    with dynadiag.record(tmp_path / "run.dynadiag"):
        compiled = torch.compile(names, backend="eager")
        for size in (4, 5):
            compiled(torch.ones(size))
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        found = explain(recording).findings
    first = next(item for item in found if item.rule == "break")
    raised = [item for item in found if item.id == "GB0088"]
    assert first.id != "GB0088"
    assert {(item.severity, found[item.caused_by or 0] is first) for item in raised} <= {("note", True)}
    if VERSION == (2, 13) and sys.version_info < (3, 14):  # `uuid4` is written otherwise there
        (then,) = [each for each in first.evidence if each.label == "then"]
        assert "TypeError" in then.text
