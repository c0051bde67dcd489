"""The record of a divergence, the first difference between the ranks of a job, and the finding that it is."""

from __future__ import annotations

from dataclasses import dataclass

from dynadiag.explanation.findings import Advice, Fact, Finding
from dynadiag.explanation.identity import identity
from dynadiag.recording.records import Span

__all__ = ["Divergence", "divergence_finding"]


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


def divergence_finding(found: Divergence, sources: dict[str, str]) -> Finding:
    """A divergence as a finding, which leads all others."""
    span = Span(found.file, found.line)
    facts = [Fact("then", sentence) for sentence in found.consequences]
    return Finding(
        rule="divergence",
        id=None,
        identity=identity("divergence", None, found.function, (span,), sources, found.kind),
        severity="error",
        span=span,
        function=found.function,
        title=found.text,
        cause=found.cause,
        places=(span,),
        compile_ids=() if found.compile_id is None else (found.compile_id,),
        ranks=found.ranks,
        advice=found.advice,
        evidence=tuple(facts),
    )
