"""The record of a divergence: the first in which the ranks of a job are not alike."""

from __future__ import annotations

from dataclasses import dataclass

from dynadiag.explanation.findings import Advice

__all__ = ["Divergence"]


@dataclass(frozen=True, slots=True)
class Divergence:
    """How ranks diverge first. ``ranks`` are the fewer, of two the one that did the unusual.

    ``others`` are those that it is compared with. ``compile_id`` is that of the rank whose compile is told.
    ``consequences`` are sentences on what follows.
    """

    kind: str  # "recompile" | "break" | "graph" | "collective" | "cache" | "skip" | "died" | "timeout"
    ranks: tuple[int, ...]
    others: tuple[int, ...]
    restart: int
    compile_id: str | None
    file: str | None
    line: int | None
    function: str
    text: str
    cause: str | None = None
    consequences: tuple[str, ...] = ()
    advice: tuple[Advice, ...] = ()
