"""The events that the process of a reduction reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dynadiag.trial.events import Event

__all__ = ["CandidateTried", "GraphCaptured", "InputsKept", "ReductionEnded", "ReductionRefused", "ReproWritten"]


@dataclass(frozen=True, slots=True)
class GraphCaptured(Event):
    """The failing graph was reached. ``operations`` counts its operations."""

    operations: int
    settings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InputsKept(Event):
    """The key of the captured graph with its inputs, by which another run knows whether they are the same."""

    key: str


@dataclass(frozen=True, slots=True)
class CandidateTried(Event):
    """One trial of the reduction. ``outcome`` is JSON, ``size`` counts operations or lines."""

    key: str
    stage: str
    size: int
    status: str
    failed: bool
    outcome: dict[str, Any]
    best: int | None = None
    cached: int | None = None
    seconds_left: float | None = None


@dataclass(frozen=True, slots=True)
class ReductionRefused(Event):
    """The graph cannot be reduced; ``text`` says why."""

    text: str


@dataclass(frozen=True, slots=True)
class ReproWritten(Event):
    """The result. ``signature`` is JSON."""

    text: str
    missing: tuple[str, ...]
    nodes_before: int
    nodes_after: int
    inputs: int
    elements: int
    minimal: bool
    cached: int
    signature: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReductionEnded(Event):
    """The reduction has ended, with or without a repro."""
