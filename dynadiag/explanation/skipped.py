"""Functions that Dynamo left to Python, and those that were counted to run mostly uncompiled, as findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dynadiag.explanation.blocks import is_last
from dynadiag.explanation.coverage import FunctionCoverage, mostly_uncompiled, share_text
from dynadiag.explanation.findings import Cost, Fact, Finding
from dynadiag.explanation.formatting import list_some
from dynadiag.explanation.identity import identity
from dynadiag.explanation.remedy import Remedy, Trial, advise, slots_if
from dynadiag.explanation.rules import Rule
from dynadiag.explanation.run_end import read_frames
from dynadiag.explanation.run_records import RunRecords, SkippedForMode
from dynadiag.explanation.source import ExplainedRecording, event_data
from dynadiag.recording.code_origin import is_resume_function, is_torch_file, original_name
from dynadiag.recording.json_values import int_or_none, list_or_empty
from dynadiag.recording.records import GENERATOR, SkippedFrame, Span

__all__ = ["read_modes", "uncompiled_findings", "with_operators"]

_Key = tuple[str | None, int | None, str]

SKIPPED_FOR_MODE: Remedy[SkippedForMode] = Remedy(
    "skipped.mode",
    'Make the call under the mode uncompiled: `with torch.compiler.set_stance("force_eager"):` around it. torch then '
    "does not mark the code, and the calls after it are compiled.",
    lambda skip: {} if skip.for_good else None,
    trials=(Trial("counts_operators", ("2.13",)),),
)

SKIPPED_GENERATOR: Remedy[SkippedFrame] = Remedy(
    "skipped.generator",
    "Compile a function that goes through it and returns what it gives (`list(...)`), or what it calls for each item.",
    lambda frame: slots_if(frame.reason == GENERATOR),
    trials=(Trial("yields_each_step", ("2.13", "2.14", "2.15")),),
)


def uncompiled_findings(run: RunRecords, before: Sequence[Finding]) -> tuple[Finding, ...]:
    """A finding for each function that was left, with the finding of ``before`` that tells why.

    Where operator calls were counted, a function most of whose calls ran uncompiled is told with their number.
    """
    told = _explained_skips(run, before)
    mostly = mostly_uncompiled(run.coverage)
    counted = {(each.file, each.line) for each in mostly}
    told_otherwise = any(graph.stage == "dynamo" for graph in run.graphs) or any(
        item.severity != "note" and item.rule in (Rule.BREAK, Rule.FAILED_COMPILE) for item in before
    )
    found = [_counted(each, run, before, told) for each in mostly]
    for frame in {_key(each.file, each.line, each.function): each for each in run.skipped}.values():
        if (frame.file, frame.line) in counted or _is_over(frame, run):
            continue
        cause = told.get(_key(frame.file, frame.line, frame.function))
        found.append(_finding(frame, run, cause, "note" if told_otherwise or cause is not None else "warning"))
    return tuple(found)


def read_modes(recording: ExplainedRecording) -> dict[tuple[str, int | None], SkippedForMode]:
    """Read the functions that were skipped because a dispatch mode was on, as the recorder saw it at the first one."""
    found: dict[tuple[str, int | None], SkippedForMode] = {}
    for _, data in event_data(recording, "dynadiag_skipped"):
        if modes := list_or_empty(data.get("modes")):
            key = (str(data.get("file")), int_or_none(data.get("line")))
            callers = tuple(read_frames(data.get("callers")))
            found.setdefault(key, SkippedForMode(tuple(map(str, modes)), callers, data.get("for_good") is not False))
    return found


def _is_over(frame: SkippedFrame, run: RunRecords) -> bool:
    """Whether a function ends with the statement at which torch split it: nothing of it is left to run."""
    return is_resume_function(frame.function) and is_last(run.sources.get(frame.file), Span(frame.file, frame.line))


def _skipped_for_mode(frame: SkippedFrame, run: RunRecords, skip: SkippedForMode) -> Finding:
    """The finding of a function that torch leaves to Python, often for good, as a dispatch mode was on in one call."""
    modes, span = list_some([mode.lstrip("_") for mode in skip.modes]), Span(frame.file, frame.line)
    call = skip.callers[-1] if skip.callers else None
    if is_torch_file(frame.file) and call is not None:  # a module of `torch.nn` that was compiled by itself
        span = Span(call.file, call.line)
    title = f"{frame.function} stays uncompiled: {modes}, a dispatch mode, was on in a call"
    why = (
        "torch skips a function that is called while a dispatch mode is on, and marks its code for good: later calls "
        "run in Python too, without the mode, and even where it was compiled before"
    )
    if not skip.for_good:
        title = f"{frame.function} ran uncompiled in a call, as {modes}, a dispatch mode, was on"
        why = "torch skips a function that is called while a dispatch mode is on; calls without the mode are compiled"
    at = [] if call is None else [Fact("from", f"the call under {modes} on", Span(call.file, call.line))]
    place = _key(frame.file, frame.line, frame.function)
    ids = [each.compile_id for each in run.compiles if _key(each.file, each.line, each.function) == place]
    unused = Fact("unused", f"what was compiled before ({list_some(ids)}): no later call runs it")
    before = [unused] if ids and skip.for_good else []
    return Finding(
        rule=Rule.UNCOMPILED,
        id=None,
        identity=identity(Rule.UNCOMPILED, None, frame.function, (span,), run.sources),
        severity="warning" if skip.for_good else "note",
        span=span,
        function=frame.function,
        title=title,
        cause=f"{why}.",
        places=(span,),
        cost=Cost(functions_uncompiled=1),
        advice=advise((SKIPPED_FOR_MODE,), skip, torch=run.run.torch),
        evidence=(Fact("why", why), *at, *before),
    )


def _finding(frame: SkippedFrame, run: RunRecords, cause: int | None, severity: str) -> Finding:
    if (skip := run.modes.get((frame.file, frame.line))) is not None:
        return _skipped_for_mode(frame, run, skip)
    function, span = original_name(frame.function), Span(frame.file, frame.line)
    reason = frame.reason or "no reason was recorded"
    if is_resume_function(frame.function):
        reason = f"what follows here, {reason}"
    title = reason.split(": ")[0].split(". ")[0]
    return Finding(
        rule=Rule.UNCOMPILED,
        id=None,
        identity=identity(Rule.UNCOMPILED, None, function, (span,), run.sources),
        severity=severity,
        span=span,
        function=function,
        title=title,
        cause=frame.reason or None,
        caused_by=cause,
        places=(span,),
        cost=Cost(functions_uncompiled=1),
        advice=advise((SKIPPED_GENERATOR,), frame, torch=run.run.torch) if severity != "note" else (),
        evidence=() if reason == title else (Fact("why", reason),),
    )


def with_operators(found: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings, each with the operators that ran uncompiled because of it, where these were counted."""
    due: dict[int, int] = {}
    for item in found:
        if item.caused_by is not None and item.cost.operators_uncompiled:
            due[item.caused_by] = due.get(item.caused_by, 0) + item.cost.operators_uncompiled
    return tuple(
        replace(item, cost=replace(item.cost, operators_uncompiled=due[index])) if index in due else item
        for index, item in enumerate(found)
    )


def _counted(each: FunctionCoverage, run: RunRecords, before: Sequence[Finding], told: dict[_Key, int]) -> Finding:
    """The finding of a function that ran mostly uncompiled: an aside, if torch's own beside functions of the user's."""
    users = run.coverage is not None and any(not _is_torchs(item) for item in run.coverage.by_function)
    span = Span(each.file, each.line)
    reasons = [item.reason for item in run.skipped if (item.file, item.line) == (each.file, each.line)]
    cause = next((index for key, index in told.items() if key[:2] == (each.file, each.line)), None)
    if cause is None:
        cause = next((index for index, item in enumerate(before) if _is_of(item, each)), None)
    return Finding(
        rule=Rule.UNCOMPILED,
        id=None,
        identity=identity(Rule.UNCOMPILED, None, each.function, (span,), run.sources),
        severity="note" if _is_torchs(each) and users else "warning",
        span=span,
        function=each.function,
        title=f"{share_text(each)} in {each.function} ran uncompiled",
        cause=next(filter(None, reasons), None),
        caused_by=cause,
        places=(span,),
        cost=Cost(operators_uncompiled=each.uncompiled, functions_uncompiled=1),
        evidence=tuple(Fact("why", reason) for reason in dict.fromkeys(reasons) if reason and cause is None),
    )


def _is_torchs(each: FunctionCoverage) -> bool:
    return is_torch_file(each.file) or each.file == "<torch>"


def _is_of(item: Finding, each: FunctionCoverage) -> bool:
    """Whether a finding is of a break in a function's own lines."""
    return item.rule in (Rule.BREAK, Rule.FAILED_COMPILE) and (item.span.file, item.function) == (
        each.file,
        each.function,
    )


def _explained_skips(run: RunRecords, before: Sequence[Finding]) -> dict[_Key, int]:
    """The finding that tells why a function was left: the break that it met, or its recompiles up to the limit."""
    met = {
        id_: index if item.caused_by is None else item.caused_by
        for index, item in enumerate(before)
        if item.rule != Rule.RECOMPILE
        for id_ in item.compile_ids
    }
    told = {
        _key(each.file, each.line, each.function): met[each.compile_id]
        for each in run.compiles
        if each.outcome == "skipped" and each.compile_id in met
    }
    for index, item in enumerate(before):
        if item.rule == Rule.RECOMPILE_LIMIT:
            told[_key(item.span.file, item.span.line, item.function)] = index
    return told


def _key(file: str | None, line: int | None, function: str) -> _Key:
    """A function that torch names once with its class and once without."""
    return (file, line, original_name(function).rpartition(".")[2])
