"""The span of a break: the expression at fault, not the statement with its whole body."""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dynadiag
from dynadiag.capture import spans
from dynadiag.capture.spans import BytePositions
from dynadiag.recording.records import Break, Span
from tests.capture.runs import Bench

pytestmark = pytest.mark.usefixtures("forked_interpreters")

PROGRAMS = {
    "if": ("x.any()", "if x.any():\n        x = x + 1\n    else:\n        x = x - 1"),
    "if on one line": ("x.any()", "if x.any(): x = x + 1"),
    "not": ("x.any()", "if not x.any():\n        x = x + 1"),
    "the second of two": ("x.any()", "if n and x.any():\n        x = x + 1"),
    "the second of two, negated": ("x.any()", "if n is not None and not x.any():\n        x = x + 1"),
    "a comparison": ("x.sum() > 0", "if x.sum() > 0:\n        x = x + 1"),
    "a named condition": ("x.any()", "if (n := x.any()):\n        x = x + n"),
    "text before it": ("x.any()", "if 'é日' and x.any():\n        x = x + 1"),
    "while": ("x.any()", "while x.any():\n        x = x - 1"),
    "conditional expression": ("x.any()", "x = (1 if x.any() else 0) + x"),
    "for": ("OBJECT", "for _ in OBJECT:\n        x = x + 1"),
    "with": ("LOCK", "with LOCK:\n        x = x + 1"),
    "the second context": ("LOCK", "with torch.no_grad(), LOCK:\n        x = x + 1"),
    "a class": ("class Local(Base, key={1: 2})", "class Local(Base, key={1: 2}):\n        k = 1"),
}
HEAD = """
import re, threading, torch
LOCK = threading.Lock()
OBJECT = re.finditer("a", "aa")
class Base:
    def __init_subclass__(cls, key): pass
def f(x, n=3):
    {body}
    return x
"""
REST = """
import threading, torch
LOCK = threading.Lock()
@torch.compiler.disable
def keep(x): return x.sum() > 0
@torch.compiler.disable
def lock(): return LOCK
def f(x, n=3):
    x = x.sin()
    {body}
    return x
"""


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def text_of(source: Sequence[str], line: int, column: int, end_line: int, end_column: int) -> str:
    lines = source[line - 1 : end_line]
    if len(lines) == 1:
        return lines[0][column:end_column]
    return "".join([lines[0][column:], *lines[1:-1], lines[-1][:end_column]])


def breaks_of(source: str, file: str, folder: Path) -> list[Break]:
    """The breaks of one call of `f` in a program that has only `linecache` for a source."""
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    space: dict[str, Any] = {}
    exec(compile(source, file, "exec"), space)
    with dynadiag.record(folder / "run.dynadiag"):
        torch.compile(space["f"], backend="eager")(torch.ones(3))
    with dynadiag.open(folder / "run.dynadiag") as recording:
        return list(recording.breaks())


def columns(span: Span) -> tuple[int, int, int, int]:
    assert None not in (span.line, span.column, span.end_line, span.end_column)
    return span.line, span.column, span.end_line, span.end_column  # type: ignore[return-value]  # not None


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_breaks_is_the_expression(name: str, tmp_path: Path) -> None:
    part, body = PROGRAMS[name]
    file = f"<{name}>"
    first = breaks_of(HEAD.format(body=body), file, tmp_path)[0]
    assert text_of(linecache.getlines(file), *columns(first.span)) == part


AFTER_A_BREAK = {
    "if": ("keep(x)", "if keep(x):\n        x = x + 1"),
    "elif": ("keep(x)", "if n > 9:\n        x = x - 1\n    elif keep(x):\n        x = x + 1"),
    "while": ("keep(x)", "while keep(x):\n        x = x - 1"),
    "with": ("lock()", "with lock() as n:\n        x = x + 1"),
}


@pytest.mark.parametrize("name", AFTER_A_BREAK)
def test_a_value_from_before_the_break_is_found_in_the_source(name: str, tmp_path: Path) -> None:
    """A function that is disabled breaks the graph, and what it returned breaks it again in the rest."""
    part, body = AFTER_A_BREAK[name]
    source, file = REST.format(body=body), f"<rest {name}>"
    found = breaks_of(source, file, tmp_path)
    in_loop = name == "while" and sys.version_info >= (3, 14)  # the bytecode has the condition in the loop there
    assert (len(found) == 1) == in_loop
    assert found[0].gb_id == "GB0098"
    assert {text_of(linecache.getlines(file), *columns(item.span)) for item in found} == {part}


@given(st.sampled_from(["if a(\n  b, {1: 'é'}):", "class é(x):", "with a[1:2] as b, c:", "while (a\n  or b):"]))
def test_the_head_of_a_statement_ends_before_its_colon(head: str) -> None:
    source = f"{head}\n    pass\n    '''\n{'x' * 40}'''\n"
    (node,) = ast.parse(source).body
    whole = BytePositions(node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)
    found = spans.blamed_positions(source.splitlines(keepends=True), iter([_Instruction(whole)]))
    assert found is not None
    assert (
        text_of(
            source.splitlines(keepends=True), found.line, found.column, found.end_line, len(head.split("\n")[-1]) - 1
        )
        == head[:-1]
    )
    assert found.end_column == len(head.split("\n")[-1].encode()) - 1


def test_a_call_of_several_lines_is_no_statement() -> None:
    source = "if match(a,\n  b): pass\n"
    call = BytePositions(1, 3, 2, 4)
    assert spans.blamed_positions(source.splitlines(keepends=True), iter([_Instruction(call)])) == call


class _Instruction:
    """An instruction as Dynamo keeps it, with the positions that CPython gave."""

    opname = "NOP"

    def __init__(self, span: BytePositions) -> None:
        self.positions = self
        self.lineno, self.col_offset = span.line, span.column
        self.end_lineno, self.end_col_offset = span.end_line, span.end_column


CHANGING = """
    import os, torch

    def f(x):
        return ("é", x.sum().item())[1]

    f = torch.compile(f, backend="eager")
    {change}
    f(torch.ones(3))
"""


@pytest.mark.parametrize("change", ["os.remove(__file__)", "open(__file__, 'w').write('日' * 90 + chr(10)) and None"])
def test_the_columns_are_of_the_program_that_runs(change: str, tmp_path: Path) -> None:
    """If a file is edited while it runs, the columns are those of the text that is shown."""
    (found,) = Bench(tmp_path, CHANGING.format(change=change)).recorded().document["breaks"]
    assert (found["line"], found["column"], found["end_column"]) == (4, 17, 31)
