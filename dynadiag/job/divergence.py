"""The record of a divergence: the first difference between the ranks of a job."""

from __future__ import annotations

from dataclasses import dataclass

from dynadiag.explanation.findings import Advice

__all__ = ["Divergence"]


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first divergence of ranks. ``ranks`` is the smaller group; of two ranks it is the one with the unusual event.
    ``others`` are those that it is compared with. ``compile_id`` is that of the rank whose compile is reported.
    ``consequences`` are sentences about what follows.
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
