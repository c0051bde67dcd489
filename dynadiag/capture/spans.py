"""Where a break is, in characters of the user's source: what its instruction works on.

CPython keeps a position for every instruction, columns and all (3.11 and up). Some stand for a whole statement with the
block under it: to underline fifty lines of a loop says nothing of what broke there.
"""

from __future__ import annotations

import io
import linecache
import re
import tokenize
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import CodeType
from typing import Any

__all__ = ["Positions", "blamed", "characters", "defined", "in_characters"]

# They take the value of an expression from the stack. CPython 3.11 gives them the position of their statement, from
# 3.12 on that of the expression (compile.c: compiler_jump_if, compiler_with, compiler_for, compiler_try_except).
_TAKES_VALUE = re.compile(r"POP_JUMP_\w*IF_|BEFORE_WITH|GET_ITER|FOR_ITER|CHECK_EXC_MATCH")
_COMPOUND = re.compile(r"(async|class|def|elif|else|except|finally|for|if|match|try|while|with)\b")
_DEFINITION = re.compile(r"(\s*)(async\s+)?def\b")
_OPENING, _CLOSING = "([{", ")]}"


@dataclass(frozen=True, slots=True, order=True)
class Positions:
    """A span of source: lines 1-based, columns in bytes of UTF-8 from 0, the end exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int

    def holds(self, other: Positions) -> bool:
        """Whether another span lies inside this one and is less than all of it."""
        return other != self and self._start <= other._start and other._end <= self._end

    @property
    def _start(self) -> tuple[int, int]:
        return self.line, self.column

    @property
    def _end(self) -> tuple[int, int]:
        return self.end_line, self.end_column


def blamed(file: str, instructions: Iterator[Any]) -> Positions | None:
    """What an instruction works on, given with those before it, the nearest first; None where nothing is known.

    The line is always the instruction's own, which torch names.
    """
    current = next(instructions, None)
    whole = _positions(current)
    if whole is None:
        return None
    if _TAKES_VALUE.match(getattr(current, "opname", "")):
        taken = _taken(whole, instructions)
        whole = taken if taken and taken.line == whole.line else whole
    return _head(file, whole) if whole.end_line > whole.line else whole


def defined(code: CodeType) -> Positions | None:
    """The head of a function's definition, below its decorators; None for a lambda, or where there is no source."""
    last = max((line for *_, line in code.co_lines() if line), default=code.co_firstlineno)
    for number in range(code.co_firstlineno, last + 1):
        text = linecache.getline(code.co_filename, number)
        if match := _DEFINITION.match(text):
            rest = Positions(number, len(match[1].encode()), last + 1, 0)
            return _head(code.co_filename, rest)
    return None


def _taken(whole: Positions, before: Iterable[Any]) -> Positions | None:
    """The expression that left its value on the stack: what the instruction before (no `GET_ITER`) works on."""
    last = next((item for item in before if getattr(item, "opname", "") != "GET_ITER"), None)
    found = _positions(last)
    return found if found and whole.holds(found) else None


def _positions(instruction: Any) -> Positions | None:
    found = getattr(instruction, "positions", None)
    if found is None or None in (found.lineno, found.end_lineno, found.col_offset, found.end_col_offset):
        return None
    return Positions(found.lineno, found.col_offset, found.end_lineno, found.end_col_offset)


def _head(file: str, span: Positions) -> Positions:
    """The head of a compound statement (``class Net(Base)``) without the block under it; all else as it is."""
    text = linecache.getline(file, span.line).encode()[span.column :].decode(errors="replace")
    if not _COMPOUND.match(text):
        return span
    rest = [linecache.getline(file, number) for number in range(span.line + 1, span.end_line + 1)]
    end = _end_of_head([text, *rest])
    if end is None:
        return span
    line, column = end
    offset = len([text, *rest][line - 1][:column].encode()) + (span.column if line == 1 else 0)
    head = Positions(span.line, span.column, span.line + line - 1, offset)
    return head if span.holds(head) else span  # not where a call of the user's own `match` ends before a colon


def _end_of_head(lines: list[str]) -> tuple[int, int] | None:
    """Line (from 1) and column (in characters) of the colon that ends the head of a compound statement."""
    depth = 0
    with suppress(tokenize.TokenError, SyntaxError):  # the block may end in the middle of a string: the head is whole
        for token in tokenize.generate_tokens(io.StringIO("".join(lines)).readline):
            if token.type == tokenize.OP:
                depth += (token.string in _OPENING) - (token.string in _CLOSING)
                if token.string == ":" and depth == 0:
                    return token.start
    return None


def in_characters(file: str, span: Positions) -> dict[str, int | None]:
    """A span as it is recorded: its columns in characters."""
    return {
        "column": characters(file, span.line, span.column),
        "end_line": span.end_line,
        "end_column": characters(file, span.end_line, span.end_column),
    }


def characters(file: str, line: int, offset: int) -> int | None:
    """A column in characters from CPython's offset in UTF-8 bytes; None where the line's text is not to be had."""
    text = linecache.getline(file, line)
    return len(text.encode()[:offset].decode(errors="replace")) if text else None
