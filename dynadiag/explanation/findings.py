"""A finding: one thing that a run has to tell, with what it costs, what caused it and what to do about it.

Every report is a rendering of one list of findings, the most important first. What ranks above what, what belongs
together, what is a consequence and what is only an aside is decided where the list is made, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dynadiag.explanation.rules import Rule
from dynadiag.explanation.runtime_cost import CallCost
from dynadiag.recording.records import Frame, Span

_SEVERITIES = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do, and how far that was checked.

    ``checked``: "tried" on such a case, "consistent" with what is known of this one, or "unchecked". ``source``: whose
    words these are. ``elsewhere`` are the versions of torch that it was tried on, where this one is not among them.
    """

    text: str
    checked: str
    source: str = "dynadiag"  # or "torch"
    key: str = ""  # of the remedy; empty for words of torch's
    elsewhere: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cost:
    """What a finding costs; ``None`` where that is not known.

    ``functions_uncompiled`` counts the functions that run in Python because of it, in whole or from some line on.
    ``call`` is its cost in one warm call, where warm calls were profiled.
    """

    operators_uncompiled: int | None = None
    compile_seconds: float | None = None
    graphs: int | None = None
    functions_uncompiled: int = 0
    call: CallCost | None = None


@dataclass(frozen=True, slots=True)
class Fact:
    """A line of evidence: a label, a text, and the source place that it is about. A ``detail`` is for full reports.

    ``note`` is what stands beside that place where the source is shown.
    """

    label: str
    text: str
    span: Span | None = None
    detail: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a run has to tell.

    ``rule`` is its kind, ``id`` torch's id of a graph break. ``identity`` is the same in another run, version or
    commit. ``cause`` is None where it is not known; ``caused_by`` is the position of another finding in the list that
    this one follows from. ``places`` are all source places that are told together, ``span`` is the first of them;
    ``place_identities`` are the identities that each would have alone, so that one more place is one more problem.
    ``called`` is the user's stack to it. ``owner`` is whose the line is, empty for the program's own, and ``entry``
    is then the program's line that leads there. ``records`` are the indices of the breaks or recompiles that it stands
    for, ``node_value`` that of the value that it is about. ``by_design``: torch breaks the graph itself there, so that
    what the user can mend stands before it.
    """

    rule: Rule
    id: str | None
    identity: str
    severity: str  # "error" | "warning" | "note"
    span: Span
    function: str
    title: str
    cause: str | None = None
    caused_by: int | None = None
    places: tuple[Span, ...] = ()
    place_identities: tuple[str, ...] = ()
    compile_ids: tuple[str, ...] = ()
    ranks: tuple[int, ...] | None = None
    cost: Cost = Cost()
    advice: tuple[Advice, ...] = ()
    evidence: tuple[Fact, ...] = ()
    called: tuple[Frame, ...] = ()
    records: tuple[int, ...] = ()
    node_value: int | None = None
    owner: str = ""
    entry: Span | None = None
    by_design: bool = False

    @property
    def is_free(self) -> bool:
        """Whether it is an aside: it costs nothing, and there is nothing to do. What follows from another is not."""
        return self.severity == "note" and self.caused_by is None

    @property
    def own_span(self) -> Span:
        """The place that the user can change: of a library's line the program's that leads there."""
        return self.entry or self.span

    @property
    def is_failed_compile(self) -> bool:
        """Whether a compile ended in an exception: one of its own, or at the recompile limit under fullgraph."""
        return self.rule == Rule.FAILED_COMPILE or (self.rule == Rule.RECOMPILE_LIMIT and self.severity == "error")

    @property
    def label(self) -> str | None:
        """What a report puts in brackets after the rule: torch's id, or the compile."""
        return self.id or (self.compile_ids[0] if self.compile_ids else None)


def ranked(found: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings, the most important first, each `caused_by` led to the new position of its cause.

    Errors stand before warnings, warnings before notes. Among them a failed compile leads, then a function that ran
    uncompiled, then what leaves most uncompiled, then what costs most; equals keep their order.
    """
    order = sorted(range(len(found)), key=lambda index: _importance(found[index]))
    position = {index: new for new, index in enumerate(order)}
    return tuple(
        replace(item, caused_by=None if item.caused_by is None else position[item.caused_by])
        for item in (found[index] for index in order)
    )


def _importance(item: Finding) -> tuple[float, ...]:
    cost = item.cost
    return (
        _SEVERITIES.index(item.severity),
        0 if item.is_failed_compile else item.rule.view.rank,
        item.by_design,
        -(cost.operators_uncompiled or 0),
        -cost.functions_uncompiled,
        -(cost.call.seconds if cost.call else 0.0),
        -(cost.graphs or 0) if item.rule == Rule.BREAK else 0,
        item.rule != Rule.BREAK,
        -len(item.records) if item.rule == Rule.BREAK else 0,
    )
