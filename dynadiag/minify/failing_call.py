"""Finds the failing call of a compiled graph. It takes at most two more trials of the whole program."""

from __future__ import annotations

from dataclasses import dataclass

from dynadiag.bisection.failing_rung import BisectOptions
from dynadiag.bisection.trial_search import TrialSearch
from dynadiag.minify.reduction_task import COMPARED_GRAPH_CALLS, GRAPH_CALLS, INDUCTOR_RANDOM
from dynadiag.trial.outcome import Decision, Outcome
from dynadiag.trial.plan import Plan
from dynadiag.trial.signature import Signature
from dynadiag.trial.typed_json import load

COMPARISON_FAILURES = ("exception", "exit")  # kinds of failure by which a program may report a wrong result itself
_AFTER_THE_CALL = (
    *COMPARISON_FAILURES,
    "signal",
)  # kinds of failure that a wrong call may cause later; writes out of bounds end in a signal


@dataclass(frozen=True, slots=True)
class FailingCall:
    """The failing call of a graph, by number, and its failure.

    ``accuracy``: its results are wrong, or a write out of bounds killed the process while they were compared (then the
    signature is a signal). ``inductor_random``: this shows only if Inductor draws its own random numbers. Then values
    are not compared, only the form of the results and whether both raise. ``caught``: the program caught the exception
    and failed later.
    """

    graph: int
    call: int
    phase: str  # "compile" | "run" | "backward"
    signature: Signature
    accuracy: bool = False
    caught: bool = False
    inductor_random: bool = False


def find_failing_call(
    search: TrialSearch, options: BisectOptions, rung: str, seen: Outcome, notes: list[str]
) -> FailingCall | None:
    """Find the call that did not end; else one with wrong results; else one whose exception the program caught.

    ``seen`` is how the program failed at the rung, with `GRAPH_CALLS` reported. Wrong results come before a caught
    exception, because a program that catches may have a fallback. Adds notes to ``notes``. The search's reference
    becomes the signature of the call. None if no call fails.
    """
    caught: FailingCall | None = None
    assert seen.signature is not None
    if not seen.signature.is_wrong_result:
        # Where calls are compared, each is made more than once, and a graph of the comparison would count too.
        outcome = search.run(_plan(options, rung, GRAPH_CALLS), "which graph fails") if options.accuracy else seen
        found, caught = _unfinished_call(outcome), _caught_backend_error(outcome)
        if found is not None and outcome.signature is not None:
            return FailingCall(*found, outcome.signature)
        if outcome.signature is not None and outcome.signature.kind not in _AFTER_THE_CALL:
            return None
        if outcome.was_killed:
            notes.append("the program crashes outside its compiled calls: the results of these are compared")
        search.on_message("no call of a compiled graph ends the program: looking for one with wrong results")
    wrong = _wrong_call(search, options, rung, notes)
    if caught is None or (wrong is not None and wrong.accuracy):
        if caught is not None:
            search.note_other_failure(caught.signature, "caught by the program")
        return wrong
    notes.append(f"the program catches the exception that is reduced ({caught.signature.text})")
    search.reference = caught.signature
    return caught


def _plan(options: BisectOptions, rung: str, *record: str) -> Plan:
    return Plan(rung=rung, caches=False, record=record, tolerance=options.tolerance)


def _wrong_call(search: TrialSearch, options: BisectOptions, rung: str, notes: list[str]) -> FailingCall | None:
    """The first call whose results differ from uncompiled ones, or that raises only compiled or only uncompiled."""
    search.reference = None  # the failure of the call differs from the failure that the program reports
    outcome = search.run(_plan(options, rung, COMPARED_GRAPH_CALLS), "which graph is wrong")
    notes += outcome.notes
    found = _unfinished_call(outcome)
    own_numbers = found is None
    if own_numbers:
        plan = _plan(options, rung, COMPARED_GRAPH_CALLS, INDUCTOR_RANDOM)
        outcome = search.run(plan, "which graph returns another form of result than uncompiled")
        found = _unfinished_call(outcome)
    if found is None or outcome.signature is None:
        return None
    search.reference = outcome.signature
    accuracy = outcome.signature.is_wrong_result or outcome.signature.kind == "signal"
    return FailingCall(*found, outcome.signature, accuracy=accuracy, inductor_random=own_numbers)


def _unfinished_call(outcome: Outcome) -> tuple[int, int, str] | None:
    """(graph, call, phase) of the last call without an end: the one that crashed, or raised the final exception."""
    cause = outcome.signature.cause if outcome.signature is not None else None
    open_: list[str] = []
    raised: str | None = None
    for point in _reports(outcome):
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
    """The first exception of a compile or a backward pass that the program caught."""
    for point in _reports(outcome):
        mark, _, name = point.key.partition(" ")
        if mark == "raise" and not name.startswith("run "):  # a call may also raise uncompiled: `_wrong_call` compares
            return FailingCall(*_parse_call_name(name), _raised_signature(point), caught=True)
    return None


def _reports(outcome: Outcome) -> list[Decision]:
    return [point for point in outcome.points if point.group == GRAPH_CALLS]


def _raised_signature(point: Decision) -> Signature:
    return load(point.target or "", Signature)


def _parse_call_name(name: str) -> tuple[int, int, str]:
    phase, graph, call = name.split()
    return int(graph), int(call), phase
