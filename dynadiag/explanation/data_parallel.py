"""Breaks that DDP and FSDP2 make of themselves, and how to compile a module that they wrap.

Tried with torch 2.13 on modules of two blocks, in one process with gloo; `tests/explanation/test_data_parallel.py`.
"""

from __future__ import annotations

from dynadiag.explanation.advice_table import advice
from dynadiag.explanation.findings import Advice
from dynadiag.recording.records import Break

__all__ = ["wrapper_advice", "wrapper_of", "wrapper_title"]

_MARKS = {"DDP": "DistributedDataParallel", "FSDP2": "/fsdp/_fully_shard/"}
_ADVICE = {"DDP": "wrapper.ddp", "FSDP2": "wrapper.fsdp2"}


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
