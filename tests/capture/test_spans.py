"""What of the user's line a break blames: the expression, not the statement with all that stands under it."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dynadiag
from dynadiag.capture import spans
from dynadiag.capture.spans import Positions

PROGRAMS = {
    "if": ("x.any()", "if x.any():\n        x = x + 1\n    else:\n        x = x - 1"),
    "if on one line": ("x.any()", "if x.any(): x = x + 1"),
    "not": ("x.any()", "if not x.any():\n        x = x + 1"),
    "the second of two": ("x.any()", "if n and x.any():\n        x = x + 1"),
    "a comparison": ("x.sum() > 0", "if x.sum() > 0:\n        x = x + 1"),
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


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def text_of(file: str, line: int, column: int, end_line: int, end_column: int) -> str:
    lines = linecache.getlines(file)[line - 1 : end_line]
    if len(lines) == 1:
        return lines[0][column:end_column]
    return "".join([lines[0][column:], *lines[1:-1], lines[-1][:end_column]])


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_breaks_is_the_expression(name: str, tmp_path: Path) -> None:
    part, body = PROGRAMS[name]
    source, file = HEAD.format(body=body), f"<{name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    space: dict[str, Any] = {}
    exec(compile(source, file, "exec"), space)
    with dynadiag.record(tmp_path / "run.dynadiag"):
        torch.compile(space["f"], backend="eager")(torch.ones(3))
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        span = recording.breaks()[0].span
    assert None not in (span.line, span.column, span.end_line, span.end_column)
    assert text_of(file, span.line, span.column, span.end_line, span.end_column) == part  # type: ignore[arg-type]  # not None


@given(st.sampled_from(["if a(\n  b, {1: 'é'}):", "class é(x):", "with a[1:2] as b, c:", "while (a\n  or b):"]))
def test_the_head_of_a_statement_ends_before_its_colon(head: str) -> None:
    source = f"{head}\n    pass\n    '''\n{'x' * 40}'''\n"
    (node,) = ast.parse(source).body
    whole = Positions(node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)
    linecache.cache["<head>"] = (len(source), None, source.splitlines(keepends=True), "<head>")
    found = spans.blamed("<head>", iter([_Instruction(whole)]))
    assert found is not None
    assert text_of("<head>", found.line, found.column, found.end_line, len(head.split("\n")[-1]) - 1) == head[:-1]
    assert found.end_column == len(head.split("\n")[-1].encode()) - 1


def test_a_call_of_several_lines_is_no_statement() -> None:
    source = "if match(a,\n  b): pass\n"
    linecache.cache["<call>"] = (len(source), None, source.splitlines(keepends=True), "<call>")
    call = Positions(1, 3, 2, 4)
    assert spans.blamed("<call>", iter([_Instruction(call)])) == call


class _Instruction:
    """An instruction as Dynamo keeps it, with the positions that CPython gave."""

    opname = "NOP"

    def __init__(self, span: Positions) -> None:
        self.positions = self
        self.lineno, self.col_offset = span.line, span.column
        self.end_lineno, self.end_col_offset = span.end_line, span.end_column
