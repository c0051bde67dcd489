"""Finds the span of source that a break is about: the code that its instruction works on.

CPython keeps a position for every instruction, with columns (3.11 and up). Some positions cover a whole statement with
its block. Then the span is narrowed, because an underlined loop of fifty lines does not say what broke.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import CodeType
from typing import Any, TypeAlias

# Instructions that take an expression's value from the stack. CPython 3.11 gives them their statement's position, from
# 3.12 on the expression's (compile.c: compiler_jump_if, compiler_with, compiler_for, compiler_try_except).
_TAKES_VALUE = re.compile(r"POP_JUMP_\w*IF_|JUMP_IF_\w+_OR_POP|BEFORE_WITH|GET_ITER|FOR_ITER|CHECK_EXC_MATCH")
# Instructions in between: in `for`, and `if (n := f(x)):`, where 3.13 and newer have TO_BOOL.
_KEEPS_VALUE = re.compile(r"GET_ITER|COPY|STORE_|TO_BOOL")
_COMPOUND = re.compile(r"(async|class|def|elif|else|except|finally|for|if|match|try|while|with)\b")
_DEFINITION = re.compile(r"(\s*)(async\s+)?def\b")
SourceText: TypeAlias = Sequence[str]  # the lines of a file with their line ends; empty if unknown
_OPENING, _CLOSING = "([{", ")]}"


@dataclass(frozen=True, slots=True, order=True)
class BytePositions:
    """A range of source: lines are 1-based, columns are 0-based UTF-8 bytes, the end is exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int

    def contains(self, other: BytePositions) -> bool:
        """Whether another range is inside this one and smaller."""
        return other != self and self._start <= other._start and other._end <= self._end

    def is_after(self, other: BytePositions) -> bool:
        """Whether this range begins behind another one."""
        return self._start >= other._end

    @property
    def _start(self) -> tuple[int, int]:
        return self.line, self.column

    @property
    def _end(self) -> tuple[int, int]:
        return self.end_line, self.end_column


def blamed_positions(source: SourceText, instructions: Iterator[Any]) -> BytePositions | None:
    """Return the code that an instruction works on, or None if it is unknown. `instructions` go backwards from it.

    The line is always the instruction's own, which torch names.
    """
    current = next(instructions, None)
    whole = _positions(current)
    if whole is None:
        return None
    if _TAKES_VALUE.match(getattr(current, "opname", "")):
        # After a break the value may come from before the break. Its instructions are gone, so parse the source.
        for find in (lambda: _value_on_stack(instructions), lambda: _head_expression(source, whole)):
            taken = find()
            if taken and taken.line == whole.line and (whole.contains(taken) or taken.is_after(whole)):
                return taken  # 3.11 gives a later operand of `and` and `or` the position of the first
    return _statement_head(source, whole) if whole.end_line > whole.line else whole


def last_on_line(source: SourceText, instructions: Iterator[Any], line: int | None) -> BytePositions | None:
    """Return the code of the last instruction on a line before one that has no code of its own.

    An exception that leaves an ``except`` or ``with`` block is raised again by such an instruction.
    """
    found = (_positions(each) for each in instructions)
    last = next((each for each in found if each is not None and each.line == line), None)
    return None if last is None else _statement_head(source, last)


def definition_head(source: SourceText, code: CodeType) -> BytePositions | None:
    """Return the head of a function's definition, below its decorators. None for a lambda, or without source."""
    last = max((line for *_, line in code.co_lines() if line), default=code.co_firstlineno)
    for number in range(code.co_firstlineno, last + 1):
        if match := _DEFINITION.match(_line(source, number)):
            return _statement_head(source, BytePositions(number, len(match[1].encode()), last + 1, 0))
    return None


def _value_on_stack(before: Iterable[Any]) -> BytePositions | None:
    """The expression that left its value on the stack: the code of the instruction before."""
    return _positions(next((item for item in before if not _KEEPS_VALUE.match(getattr(item, "opname", ""))), None))


def _head_expression(source: SourceText, span: BytePositions) -> BytePositions | None:
    """The expression in the head of a statement: its condition, its iterable, its context manager."""
    head = _statement_head(source, span)
    lines = [_line(source, number) for number in range(head.line, head.end_line + 1)]
    if head == span or not lines[0]:
        return None
    lines[-1] = lines[-1].encode()[: head.end_column].decode(errors="replace")
    text = "".join(lines).encode()[head.column :].decode(errors="replace")
    kind = text[:4]
    before = {"elif": "if 0: pass\n", "exce": "try: pass\n"}.get(kind, "")
    with suppress(SyntaxError):
        found = _expression(ast.parse(f"{before}{text}: pass").body[0])
        return None if found is None else _shifted_to_head(found, head, -1 if before else 0)
    return None


def _expression(node: ast.AST) -> ast.expr | None:
    match node:
        case ast.If(orelse=[ast.If() as other]):
            return other.test
        case ast.If() | ast.While():
            return node.test
        case ast.For():
            return node.iter
        case ast.With(items=[item]):
            return item.context_expr
        case ast.Try(handlers=[handler]):
            return handler.type
    return None


def _shifted_to_head(node: ast.expr, head: BytePositions, lines: int) -> BytePositions:
    """The file position of a node that was parsed from the text of a head."""
    line, end_line = node.lineno + lines, node.end_lineno or node.lineno
    end_line += lines
    column, end_column = node.col_offset, node.end_col_offset or 0
    return BytePositions(
        head.line + line - 1,
        column + (head.column if line == 1 else 0),
        head.line + end_line - 1,
        end_column + (head.column if end_line == 1 else 0),
    )


def _positions(instruction: Any) -> BytePositions | None:
    found = getattr(instruction, "positions", None)
    if found is None or None in (found.lineno, found.end_lineno, found.col_offset, found.end_col_offset):
        return None
    return BytePositions(found.lineno, found.col_offset, found.end_lineno, found.end_col_offset)


def _statement_head(source: SourceText, span: BytePositions) -> BytePositions:
    """The head of a compound statement (``class Net(Base)``) without its block. Any other span as it is."""
    text = _line(source, span.line).encode()[span.column :].decode(errors="replace")
    if not _COMPOUND.match(text):
        return span
    rest = [_line(source, number) for number in range(span.line + 1, span.end_line + 1)]
    end = _end_of_head([text, *rest])
    if end is None:
        return span
    line, column = end
    offset = len([text, *rest][line - 1][:column].encode()) + (span.column if line == 1 else 0)
    head = BytePositions(span.line, span.column, span.line + line - 1, offset)
    return head if span.contains(head) else span  # a call of the user's own `match` may end before a colon


def _end_of_head(lines: list[str]) -> tuple[int, int] | None:
    """Line (from 1) and column (in characters) of the colon that ends the head of a compound statement."""
    depth = 0
    with suppress(tokenize.TokenError, SyntaxError):  # the text may end inside a string of the block
        for token in tokenize.generate_tokens(io.StringIO("".join(lines)).readline):
            if token.type == tokenize.OP:
                depth += (token.string in _OPENING) - (token.string in _CLOSING)
                if token.string == ":" and depth == 0:
                    return token.start
    return None


def to_character_columns(source: SourceText, span: BytePositions) -> dict[str, int | None]:
    """Return a span as it is recorded. Columns are in characters, None when the text of their line is unknown."""
    return {
        "column": _character_column(source, span.line, span.column),
        "end_line": span.end_line,
        "end_column": _character_column(source, span.end_line, span.end_column),
    }


def _character_column(source: SourceText, line: int, offset: int) -> int | None:
    """Convert CPython's offset in UTF-8 bytes to a column in characters."""
    text = _line(source, line)
    return len(text.encode()[:offset].decode(errors="replace")) if text else None


def _line(source: SourceText, number: int) -> str:
    """A line by its 1-based number. Empty if there is none."""
    return source[number - 1] if 1 <= number <= len(source) else ""
