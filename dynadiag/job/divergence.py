"""The record of a divergence, the first difference between the ranks of a job, and the finding that it is."""

from __future__ import annotations

from dataclasses import dataclass

from dynadiag.explanation.findings import Advice, Fact, Finding
from dynadiag.explanation.identity import identity
from dynadiag.explanation.rules import Rule
from dynadiag.recording.code_origin import is_user_file
from dynadiag.recording.records import Compile, Span

Location = tuple[str | None, int | None, str]  # file, line, function


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first divergence of ranks. ``ranks`` is the smaller group; of two ranks it is the one with the unusual event.
    ``compile_id`` is that of the rank whose compile is reported. ``consequences`` are sentences about what follows.
    """

    kind: str  # "recompile" | "break" | "graph" | "collective" | "cache" | "skip" | "died" | "timeout"
    ranks: tuple[int, ...]
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
        rule=Rule.DIVERGENCE,
        id=None,
        identity=identity(Rule.DIVERGENCE, None, found.function, (span,), sources, found.kind),
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


@dataclass(frozen=True, slots=True)
class DivergenceText:
    """What is specific to a kind: text, location, cause, keys of advice, and sentences on what follows."""

    text: str
    location: Location
    cause: str | None = None
    advice: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()


def compile_location(item: Compile) -> Location:
    """The function that was compiled; if it is torch's, the user's line that calls it."""
    if not is_user_file(item.file) and (own := [each for each in item.user_stack if is_user_file(each.file)]):
        return own[-1].file, own[-1].line, own[-1].function
    return item.file, item.line, item.function
