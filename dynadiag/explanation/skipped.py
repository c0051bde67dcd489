"""Functions that Dynamo left to Python, and those that were counted to run mostly uncompiled, as findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from dynadiag.explanation.blocks import is_context_manager, is_last
from dynadiag.explanation.coverage import FunctionCoverage, mostly_uncompiled, share_text
from dynadiag.explanation.findings import Cost, Fact, Finding
from dynadiag.explanation.formatting import count, list_some
from dynadiag.explanation.identity import identity
from dynadiag.explanation.remedy import Remedy, Trial, advise, slots_if, tried
from dynadiag.explanation.rules import Rule
from dynadiag.explanation.run_end import read_frames
from dynadiag.explanation.run_records import FunctionKey, RunRecords, SkippedForMode, function_key
from dynadiag.explanation.source import ExplainedRecording, event_data
from dynadiag.recording.code_origin import is_resume_function, is_torch_file, original_name
from dynadiag.recording.json_values import int_or_none, list_or_empty
from dynadiag.recording.records import GENERATOR, NO_OPERATION, Compile, SkippedFrame, Span

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

SKIPPED_CONTEXT: Remedy[SkippedFrame] = Remedy(
    "skipped.context",
    "It is a context manager: compile a function that enters it, with what is computed under it in the `with` block.",
    lambda frame: slots_if(frame.reason == GENERATOR),
    trials=tried("enters_a_context"),
)

SKIPPED_WITHOUT_OPERATION: Remedy[SkippedFrame] = Remedy(
    "skipped.no_operation",
    "Decide in front of the call, outside of the compiled function, or let each call compute something: "
    "`return x.clone()`.",
    lambda frame: slots_if(frame.reason == NO_OPERATION),
    trials=tried("returns_what_it_was_given"),
)

SKIPPED: tuple[Remedy[Any], ...] = (SKIPPED_FOR_MODE, SKIPPED_GENERATOR, SKIPPED_CONTEXT, SKIPPED_WITHOUT_OPERATION)


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
    for frame in {function_key(each.file, each.line, each.function): each for each in run.skipped}.values():
        if (frame.file, frame.line) in counted or _is_over(frame, run):
            continue
        cause = told.get(function_key(frame.file, frame.line, frame.function))
        found.append(_finding(frame, run, cause, "note" if told_otherwise or cause is not None else "warning"))
    return tuple(found)


def read_modes(recording: ExplainedRecording) -> dict[tuple[str, int | None], SkippedForMode]:
    """Read the functions that were skipped because a dispatch mode was on, as the recorder saw it at the first one."""
    found: dict[tuple[str, int | None], SkippedForMode] = {}
    for _, data in event_data(recording, "dynadiag_skipped"):
        if modes := list_or_empty(data.get("modes")):
            key = (str(data.get("file")), int_or_none(data.get("line")))
            callers = read_frames(data.get("callers"))
            found.setdefault(key, SkippedForMode(tuple(map(str, modes)), callers, data.get("for_good") is not False))
    return found


def read_later_calls(recording: ExplainedRecording) -> dict[FunctionKey, dict[Span, int] | None]:
    """Read how often each line called a compiled function after torch had left it to Python; None for a function that
    torch compiled again, after a reset.
    """
    found: dict[FunctionKey, dict[Span, int] | None] = {}
    for _, data in event_data(recording, "dynadiag_later_calls"):
        calls = [each for each in list_or_empty(data.get("calls")) if isinstance(each, dict)]
        key = function_key(str(data.get("file")), int_or_none(data.get("line")), str(data.get("function")))
        counts = {
            Span(str(each.get("file")), int_or_none(each.get("line"))): int_or_none(each.get("count")) or 0
            for each in calls
        }
        found[key] = None if data.get("calls") is None else counts
    return found


def with_later_calls(found: Sequence[Finding], run: RunRecords) -> tuple[Finding, ...]:
    """The findings; those that tell why a function was left have what that does to its later calls."""
    after: dict[int, list[Fact]] = {}
    for key, index in _explained_skips(run, found).items():
        after.setdefault(index, []).extend(_aftermath(key, run, at_limit=found[index].rule == Rule.RECOMPILE_LIMIT))
    return tuple(
        replace(item, evidence=(*item.evidence, *dict.fromkeys(after[index]))) if index in after else item
        for index, item in enumerate(found)
    )


def _aftermath(key: FunctionKey, run: RunRecords, *, at_limit: bool = False) -> Iterator[Fact]:
    """What was compiled of a function before torch left it, and its calls from then on."""
    calls = run.later_calls.get(key, {})
    if calls is None:
        return
    own = [each for each in run.compiles if _is_of_function(each, key)]
    is_left = [each.outcome == "skipped" for each in own]
    ids = [each.compile_id for each in own if each.compile_id in run.compiled]
    if ids and not at_limit and is_left == sorted(is_left):  # else `torch.compiler.reset` made torch forget it
        yield Fact("unused", f"what was compiled before ({list_some(ids)}): no later call runs it")
    most = max(calls, key=calls.__getitem__, default=None)
    if most is None:
        return
    made = sum(calls.values())
    here = f", {calls[most]} of them here" if len(calls) > 1 else ""
    ran = "of which those that fit nothing compiled ran in Python" if at_limit else "which ran in Python"
    yield Fact("later", f"{count(made, 'call')}, {ran}{here}", most)


def _is_of_function(each: Compile, key: FunctionKey) -> bool:
    return function_key(each.file, each.line, each.function) == key


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
    after = _aftermath(function_key(frame.file, frame.line, frame.function), run) if skip.for_good else ()
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
        evidence=(Fact("why", why), *at, *after),
    )


def _first_call(frame: SkippedFrame, run: RunRecords) -> Iterator[Fact]:
    """The call in which torch left a function that it had begun to trace."""
    key = function_key(frame.file, frame.line, frame.function)
    for each in run.compiles:
        if each.outcome == "skipped" and _is_of_function(each, key) and each.callers:
            yield Fact("from", "this call on", Span(each.callers[-1].file, each.callers[-1].line))
            return


def _finding(frame: SkippedFrame, run: RunRecords, cause: int | None, severity: str) -> Finding:
    if (skip := run.modes.get((frame.file, frame.line))) is not None:
        return _skipped_for_mode(frame, run, skip)
    function, span = original_name(frame.function), Span(frame.file, frame.line)
    reason = frame.reason or "no reason was recorded"
    if is_resume_function(frame.function):
        reason = f"what follows here, {reason}"
    title = reason.split(": ")[0].split(". ")[0]
    after = tuple(_aftermath(function_key(frame.file, frame.line, frame.function), run)) if cause is None else ()
    evidence = [] if reason == title else [Fact("why", reason)]
    generator = SKIPPED_CONTEXT if is_context_manager(run.sources.get(frame.file), frame.line) else SKIPPED_GENERATOR
    if frame.reason == NO_OPERATION and after:
        severity = "warning" if any(fact.label == "unused" for fact in after) else severity
        title = f"{function} stays uncompiled: a call of it had no tensor operation"
        why = "torch marks the code of a function that has nothing to compile in a call, and leaves it to Python"
        evidence = [Fact("why", why), *_first_call(frame, run)]
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
        advice=advise((generator, SKIPPED_WITHOUT_OPERATION), frame, torch=run.run.torch) if severity != "note" else (),
        evidence=(*evidence, *after),
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


def _counted(
    each: FunctionCoverage, run: RunRecords, before: Sequence[Finding], told: dict[FunctionKey, int]
) -> Finding:
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


def _explained_skips(run: RunRecords, before: Sequence[Finding]) -> dict[FunctionKey, int]:
    """The finding that tells why a function was left: the break that it met, or its recompiles up to the limit."""
    met = {
        id_: index if item.caused_by is None else item.caused_by
        for index, item in enumerate(before)
        if item.rule != Rule.RECOMPILE
        for id_ in item.compile_ids
    }
    told = {
        function_key(each.file, each.line, each.function): met[each.compile_id]
        for each in run.compiles
        if each.outcome == "skipped" and each.compile_id in met
    }
    for index, item in enumerate(before):
        if item.rule == Rule.RECOMPILE_LIMIT:
            told[function_key(item.span.file, item.span.line, item.function)] = index
    return told
