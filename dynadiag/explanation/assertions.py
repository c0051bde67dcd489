"""Breaks at an `assert`, which torch reports as data-dependent branching (GB0170).

torch traces an assertion on a tensor if its message is a text. It leaves to Python one that fails while tracing, and
one whose message is an object.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from dynadiag.explanation.advice_table import advice
from dynadiag.explanation.findings import Advice
from dynadiag.explanation.identity import parsed
from dynadiag.recording.records import Break, Span

__all__ = ["assertion_advice", "failed_assertion"]

_FAILED = re.compile(r"^The condition is \S+ while tracing", re.MULTILINE)  # the digest's words


def failed_assertion(item: Break) -> str | None:
    """Return the title of a break at an assertion that fails whatever the tensors hold, else None."""
    return "an assertion fails, whatever the tensors hold" if _FAILED.search(item.explanation) else None


def assertion_advice(item: Break, sources: Mapping[str, str]) -> tuple[Advice, ...]:
    """Return what to do about a break at an assertion. torch's hints are on other branches."""
    if failed_assertion(item):
        return (advice("exception.check"),)
    if _is_assertion(sources.get(item.span.file or ""), item.span):
        return (advice("assert.shapes", case=item.gb_id), advice("assert.async", case=item.gb_id))
    return ()


def _is_assertion(source: str | None, span: Span) -> bool:
    """Whether a span is the condition of an ``assert``, or in it."""
    tree = parsed(source) if source and span.line else None
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)] if tree else []
    return any(each.lineno <= (span.line or 0) <= (each.test.end_lineno or each.lineno) for each in found)
