"""How much of the work ran compiled: operator calls in graphs and outside of them, by function.

`explain --coverage` counts them in a run of its own and writes the counts into the recording (``dynadiag_coverage``).
Only what happens while a compiled call runs is held against compiling: what a program does before, between and after
these calls, such as its optimizer's step, is counted apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

import msgspec

from dynadiag.explanation.formatting import count
from dynadiag.explanation.source import ExplainedRecording, first_payload

COVERAGE = "dynadiag_coverage"  # the kind of the event

Calls: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


@dataclass(frozen=True, slots=True)
class FunctionCoverage:
    """The operator calls of one function, its callees' not among them."""

    function: str
    file: str
    line: int | None
    compiled: Calls
    uncompiled: Calls


@dataclass(frozen=True, slots=True)
class Coverage:
    """The operator calls of a run while compiled calls ran, and how many were made ``outside`` of all of them.

    ``compiled`` counts the nodes of Dynamo's graphs times their calls, ``uncompiled`` the operators that Python called
    and that called no other operator. ``by_function`` has what most ran uncompiled first. ``note`` says what the
    counts lack.
    """

    compiled: Calls
    uncompiled: Calls
    outside: Calls
    by_function: tuple[FunctionCoverage, ...]
    note: str | None = None


def read_coverage(recording: ExplainedRecording) -> Coverage | None:
    """The counts that a recording has; None where it has none, or none that can be read."""
    return first_payload(recording, COVERAGE, Coverage)


def mostly_uncompiled(coverage: Coverage | None) -> tuple[FunctionCoverage, ...]:
    """The functions most of whose operators ran uncompiled, those that called most of them first."""
    return () if coverage is None else tuple(each for each in coverage.by_function if each.uncompiled > each.compiled)


def share_text(each: FunctionCoverage) -> str:
    """How many of a function's operator calls ran uncompiled."""
    calls = count(each.compiled + each.uncompiled, "operator call")
    return f"{each.uncompiled} of {calls}" if each.compiled else f"all {calls}"
