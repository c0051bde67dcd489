"""The block of statements because of which a graph break leaves a whole function to Python.

Dynamo goes on after a break by compiling the rest of the function, which it cannot begin in the middle of some blocks.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from dynadiag.explanation.identity import parsed
from dynadiag.recording.records import Span

__all__ = ["unsplittable_block"]

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_ENTERED_AGAIN = re.compile(r"torch\.|(contextlib\.)?nullcontext\b")  # context managers that Dynamo knows


def unsplittable_block(source: str | None, span: Span) -> str | None:
    """What the innermost such block around a place is ("a loop", "a `with` block", ...). ``None`` if there is none.

    Tried on torch 2.13 and 2.15: Dynamo goes on in an ``else``, in a ``finally``, and in a ``with`` of torch's own.
    """
    tree = None if source is None or span.line is None else parsed(source)
    line, found = span.line or 0, None
    statements = (node for node in ast.walk(tree) if isinstance(node, (ast.stmt, ast.Lambda))) if tree else ()
    around = [node for node in statements if node.lineno <= line <= (node.end_lineno or node.lineno)]
    for node in sorted(around, key=lambda node: (node.lineno, -(node.end_lineno or 0))):
        found = None if isinstance(node, _SCOPES) else _kind(node, line) or found
    return found


def _kind(node: ast.AST, line: int) -> str | None:
    match node:
        case ast.For() | ast.AsyncFor() | ast.While() if _within(node.body, line):
            return "a loop"
        case ast.With() | ast.AsyncWith() if _within(node.body, line):
            known = all(_ENTERED_AGAIN.match(ast.unparse(item.context_expr)) for item in node.items)
            return None if known else "a `with` block"
        case ast.Try() | ast.TryStar() if _within(node.body, line):
            return "a `try` block"
        case ast.Try() | ast.TryStar() if any(_within(handler.body, line) for handler in node.handlers):
            return "an `except` block"
    return None


def _within(body: Sequence[ast.stmt], line: int) -> bool:
    return body[0].lineno <= line <= (body[-1].end_lineno or body[-1].lineno)
