"""Which call of which graph of a program fails, and how: from a trial or two of the whole program."""

from __future__ import annotations

import json
from dataclasses import dataclass

from dynadiag.bisect.failing_rung import BisectOptions
from dynadiag.bisect.trial_search import TrialSearch
from dynadiag.minify.event_kinds import COMPARED_GRAPH_CALLS, GRAPH_CALLS, INDUCTOR_RANDOM
from dynadiag.trial.outcome import Decision, Outcome
from dynadiag.trial.plan import Plan
from dynadiag.trial.signature import Signature

__all__ = ["COMPARISON_FAILURES", "FailingCall", "find_failing_call"]

COMPARISON_FAILURES = ("exception", "exit")  # kinds of failure that a program's own comparison may have
_WRONG = ("wrong_result", "nan")
_AFTER_THE_CALL = (
    *COMPARISON_FAILURES,
    "signal",
)  # kinds that a wrong result may come to after the call: memory written out of bounds is one


@dataclass(frozen=True, slots=True)
class FailingCall:
    """The failing call of a graph, by numbers, and the failure as it shows there.

    ``accuracy``: its results are wrong, or what it wrote out of bounds ended the comparison of them (then the signature
    is a signal); with ``inductor_random`` only where Inductor draws its own random numbers: it compiles what raises
    uncompiled, or gives it another form. ``caught``: it raised, and the program went on and failed later.
    """

    graph: int
    call: int
    phase: str  # "compile" | "run" | "backward"
    signature: Signature
    accuracy: bool = False
    caught: bool = False
    inductor_random: bool = False


def find_failing_call(
    search: TrialSearch, options: BisectOptions, rung: str, failure: Signature, notes: list[str]
) -> FailingCall | None:
    """The call that did not end; else the one whose results are wrong; else the one whose exception was caught.

    A wrong result goes before an exception that the program caught, since a program that catches may have a way
    around. What is found tells itself to ``notes``, and the search's reference becomes its signature.
    """
    caught: FailingCall | None = None
    if failure.kind not in _WRONG:
        outcome = search.run(_plan(options, rung, GRAPH_CALLS), "which graph fails")
        found, caught = _unfinished_call(outcome), _caught_backend_error(outcome)
        if found is not None and outcome.signature is not None:
            return FailingCall(*found, outcome.signature)
        if outcome.signature is not None and outcome.signature.kind not in _AFTER_THE_CALL:
            return None
        if outcome.was_killed:
            notes.append("the program crashes after its compiled calls have ended: their results are compared")
        search.on_message("no compiled graph ends the program: looking for one whose results are wrong")
    wrong = _wrong_call(search, options, rung, notes)
    if caught is None or (wrong is not None and wrong.accuracy):
        if caught is not None:
            search.other_failures[f"caught by the program: {_summary(caught.signature)}"] = None
        return wrong
    notes.append(f"the program catches what is reduced ({_summary(caught.signature)})")
    search.reference = caught.signature
    return caught


def _plan(options: BisectOptions, rung: str, *record: str) -> Plan:
    return Plan(rung=rung, caches=False, record=record, tolerance=options.tolerance)


def _wrong_call(search: TrialSearch, options: BisectOptions, rung: str, notes: list[str]) -> FailingCall | None:
    """The first call of a graph whose results differ, or which raises and does not raise uncompiled."""
    search.reference = None  # what is looked for is another failure than the one that the program told
    outcome = search.run(_plan(options, rung, COMPARED_GRAPH_CALLS), "which graph is wrong")
    notes += outcome.notes
    found = _unfinished_call(outcome)
    own_numbers = found is None
    if own_numbers:
        plan = _plan(options, rung, COMPARED_GRAPH_CALLS, INDUCTOR_RANDOM)
        outcome = search.run(plan, "which graph returns what it does not uncompiled")
        found = _unfinished_call(outcome)
    if found is None or outcome.signature is None:
        return None
    search.reference = outcome.signature
    accuracy = outcome.signature.kind in (*_WRONG, "signal")
    return FailingCall(*found, outcome.signature, accuracy=accuracy, inductor_random=own_numbers)


def _unfinished_call(outcome: Outcome) -> tuple[int, int, str] | None:
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
        if point.target is not None and _raised_signature(point).cause == cause:
            raised = name
    found = open_[-1] if open_ else raised
    return _parse_call_name(found) if found is not None else None


def _caught_backend_error(outcome: Outcome) -> FailingCall | None:
    """The first exception of a backend, forward or backward, that left a compiled call and not the program."""
    for point in outcome.points:
        mark, _, name = point.key.partition(" ")
        if mark == "raise" and not name.startswith("run "):  # a call may raise uncompiled too: that is for comparing
            return FailingCall(*_parse_call_name(name), _raised_signature(point), caught=True)
    return None


def _raised_signature(point: Decision) -> Signature:
    return Signature.from_json(json.loads(point.target or ""))


def _parse_call_name(name: str) -> tuple[int, int, str]:
    phase, graph, call = name.split()
    return int(graph), int(call), phase


def _summary(signature: Signature) -> str:
    return f"{signature.type}: {''.join(signature.message.splitlines()[:1])[:200]}"
