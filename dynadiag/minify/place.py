"""Which call of which graph of a program fails, and how: from a trial or two of the whole program."""

from __future__ import annotations

import json
from dataclasses import dataclass

from dynadiag.bisect.bisector import Options
from dynadiag.bisect.search import Search
from dynadiag.minify.signs import CALLS, COMPARED_CALLS, OWN_NUMBERS
from dynadiag.trial.outcome import Outcome, Point
from dynadiag.trial.plan import Plan
from dynadiag.trial.signature import Signature

__all__ = ["OWN", "Place", "find_place"]

OWN = ("exception", "exit")  # kinds of failure that a program's own comparison may have
_WRONG = ("wrong_result", "nan")
_LATER = (*OWN, "signal")  # kinds that a wrong result may come to after the call: memory written out of bounds is one


@dataclass(frozen=True, slots=True)
class Place:
    """The failing call of a graph, by numbers, and the failure as it shows there.

    ``accuracy``: its results are wrong, or what it wrote out of bounds ended the comparison of them (then the signature
    is a signal); with ``own_numbers`` only where Inductor draws its own random numbers: it compiles what raises
    uncompiled, or gives it another form. ``caught``: it raised, and the program went on and failed later.
    """

    graph: int
    call: int
    phase: str  # "compile" | "run" | "backward"
    signature: Signature
    accuracy: bool = False
    caught: bool = False
    own_numbers: bool = False


def find_place(search: Search, options: Options, rung: str, failure: Signature, notes: list[str]) -> Place | None:
    """The call that did not end; else the one whose results are wrong; else the one whose exception was caught.

    A wrong result goes before an exception that the program caught, since a program that catches may have a way
    around. What is found tells itself to ``notes``, and the search's reference becomes its signature.
    """
    caught: Place | None = None
    if failure.kind not in _WRONG:
        outcome = search.trial(_plan(options, rung, CALLS), "which graph fails")
        found, caught = _unfinished(outcome), _caught(outcome)
        if found is not None and outcome.signature is not None:
            return Place(*found, outcome.signature)
        if outcome.signature is not None and outcome.signature.kind not in _LATER:
            return None
        if outcome.killed:
            notes.append("the program crashes after its compiled calls have ended: their results are compared")
        search.announce("no compiled graph ends the program: looking for one whose results are wrong")
    wrong = _wrong_call(search, options, rung, notes)
    if caught is None or (wrong is not None and wrong.accuracy):
        if caught is not None:
            search.side_finds[f"caught by the program: {_brief(caught.signature)}"] = None
        return wrong
    notes.append(f"the program catches what is reduced ({_brief(caught.signature)})")
    search.reference = caught.signature
    return caught


def _plan(options: Options, rung: str, *record: str) -> Plan:
    return Plan(rung=rung, caches=False, record=record, tolerance=options.tolerance)


def _wrong_call(search: Search, options: Options, rung: str, notes: list[str]) -> Place | None:
    """The first call of a graph whose results differ, or which raises and does not raise uncompiled."""
    search.reference = None  # what is looked for is another failure than the one that the program told
    outcome = search.trial(_plan(options, rung, COMPARED_CALLS), "which graph is wrong")
    notes += outcome.notes
    found = _unfinished(outcome)
    own_numbers = found is None
    if own_numbers:
        plan = _plan(options, rung, COMPARED_CALLS, OWN_NUMBERS)
        outcome = search.trial(plan, "which graph returns what it does not uncompiled")
        found = _unfinished(outcome)
    if found is None or outcome.signature is None:
        return None
    search.reference = outcome.signature
    accuracy = outcome.signature.kind in (*_WRONG, "signal")
    return Place(*found, outcome.signature, accuracy=accuracy, own_numbers=own_numbers)


def _unfinished(outcome: Outcome) -> tuple[int, int, str] | None:
    """(graph, call, phase) of the last begin without an end: where it crashed, or raised what ended the program."""
    cause = outcome.signature.cause if outcome.signature is not None else None
    open_: list[str] = []
    raised: str | None = None
    for point in outcome.points:
        mark, _, name = point.key.partition(" ")
        if mark == "begin":
            open_.append(name)
        elif name in open_:
            open_.remove(name)
        if point.target is not None and _raised(point).cause == cause:
            raised = name
    found = open_[-1] if open_ else raised
    return _numbers(found) if found is not None else None


def _caught(outcome: Outcome) -> Place | None:
    """The first exception of a backend, forward or backward, that left a compiled call and not the program."""
    for point in outcome.points:
        mark, _, name = point.key.partition(" ")
        if mark == "raise" and not name.startswith("run "):  # a call may raise uncompiled too: that is for comparing
            return Place(*_numbers(name), _raised(point), caught=True)
    return None


def _raised(point: Point) -> Signature:
    return Signature.from_json(json.loads(point.target or ""))


def _numbers(name: str) -> tuple[int, int, str]:
    phase, graph, call = name.split()
    return int(graph), int(call), phase


def _brief(signature: Signature) -> str:
    return f"{signature.type}: {''.join(signature.message.splitlines()[:1])[:200]}"
