"""Breaks at an exception that the traced code raises: where it was raised, and where it only passed.

An exception that no traced code handles makes torch leave the function to Python, and the next function that it passes,
and so on. Each is a graph break of its own (GB0088), at a ``finally``, a ``with`` or a call; the cause is the raise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dynadiag.explanation.findings import Fact, Finding
from dynadiag.recording.records import Break, Span


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception of the traced code: its type and text, and the place of the raise if that is known."""

    text: str
    span: Span | None


def raised_in(item: Break) -> Raised | None:
    """The exception of the traced code that a break is at."""
    facts = item.facts
    if facts.exception is None:
        return None
    text = f"{facts.exception}: {facts.message}" if facts.message else facts.exception
    return Raised(text, facts.raised_at if facts.raised_at.file else None)


def link_exceptions(found: Sequence[Finding], records: Mapping[int, Break]) -> tuple[Finding, ...]:
    """The findings. Of those at one exception, the raise is the cause, and the others are notes that follow from it."""
    groups: dict[Raised, list[int]] = {}
    for index, item in enumerate(found):
        if (raised := raised_in(records[item.records[0]])) is not None:
            groups.setdefault(raised, []).append(index)
    made = list(found)
    for raised, indices in groups.items():
        cause = _cause(raised, [found[index] for index in indices])
        chosen = next((index for index in indices if found[index] is cause), None)
        if cause is None or chosen is None:  # nobody knows which of them raised it
            continue
        passed = [made[index] for index in indices if index != chosen]
        made[chosen] = _raise_finding(cause, raised, passed)
        for index in indices:
            if index != chosen:
                title = f"passed by {raised.text}"
                made[index] = replace(made[index], severity="note", caused_by=chosen, title=title, advice=())
    return tuple(made)


def _cause(raised: Raised, found: Sequence[Finding]) -> Finding | None:
    """The break at the raise; else the one that the exception came to first, which is innermost in the user's stack."""
    at_raise = [item for item in found if raised.span in [Span(place.file, place.line) for place in item.places]]
    if at_raise or raised.span is None:
        return next(iter(at_raise), found[0] if len(found) == 1 else None)
    return max(found, key=lambda item: len(item.called))


def _raise_finding(item: Finding, raised: Raised, passed: Sequence[Finding]) -> Finding:
    """The cause, at the line of the raise, with what the exception passed."""
    own = raised.span is None or (raised.span.file, raised.span.line) == (item.span.file, item.span.line)
    span = item.span if own or raised.span is None else raised.span
    through = [Fact("passed", "", place) for each in passed for place in each.places]
    through += [] if own else [Fact("passed", "", item.span)]
    unknown = [] if raised.span else [Fact("note", "where it was raised was not recorded")]
    return replace(
        item,
        span=span,
        places=(span,) if not own else item.places,
        title=f"{item.title}: {raised.text}",
        cause=f"Tracing raises {raised.text}. No traced code handles it, so the function is left to Python. (If Python "
        "does not raise it here, torch traces this line wrongly.)",
        cost=replace(item.cost, functions_uncompiled=sum(each.cost.functions_uncompiled for each in (item, *passed))),
        evidence=(*item.evidence, *through, *unknown),
    )
