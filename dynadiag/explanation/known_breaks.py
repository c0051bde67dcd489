"""Breaks that torch's own words do not tell: at an `assert`, and in the code of DDP and FSDP2.

torch reports an assertion as data-dependent branching (GB0170). It traces one on a tensor if its message is a text. It
leaves to Python one that fails while tracing, and one whose message is an object.

DDP and FSDP2 break the graph of a module that they wrap by themselves. How to compile it all the same was tried with
torch 2.13 on modules of two blocks, in one process with gloo (`tests/explanation/test_data_parallel.py`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from dynadiag.explanation.advice_table import advice
from dynadiag.explanation.findings import Advice
from dynadiag.explanation.identity import parsed
from dynadiag.recording.records import Break, Span

__all__ = ["assertion_advice", "failed_assertion", "wrapper_advice", "wrapper_of", "wrapper_title"]

_FAILED = re.compile(r"^The condition is \S+ while tracing", re.MULTILINE)  # the digest's words
_MARKS = {"DDP": "DistributedDataParallel", "FSDP2": "/fsdp/_fully_shard/"}
_ADVICE = {"DDP": "wrapper.ddp", "FSDP2": "wrapper.fsdp2"}


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


def wrapper_of(item: Break) -> str | None:
    """Return ``DDP`` or ``FSDP2`` if a break is in code with which they wrap the user's module, else None."""
    text = f"{item.function}\n{item.reason}\n{item.explanation}\n{item.span.file}"
    return next((name for name, mark in _MARKS.items() if mark in text), None)


def wrapper_advice(item: Break) -> tuple[Advice, ...]:
    """Return what to do about such a break. torch's own hints on it are to change torch."""
    found = wrapper_of(item)
    return () if found is None else (advice(_ADVICE[found]),)


def wrapper_title(item: Break, *, compiled: bool) -> str | None:
    """Return what such a break is, in a line. ``compiled`` says whether the run has any graph."""
    found = wrapper_of(item)
    if found == "DDP":
        return "DDP's own forward runs in Python" + ("" if compiled else ", and nothing in it was compiled")
    return "FSDP2's hooks run in Python, around each module that `fully_shard` was called on" if found else None
