"""Functions that Dynamo left to Python, as findings."""

from __future__ import annotations

from collections.abc import Sequence

from dynadiag.explanation.findings import Cost, Fact, Finding
from dynadiag.explanation.identity import identity
from dynadiag.explanation.run_records import RunRecords
from dynadiag.recording.code_origin import is_resume_function, original_name
from dynadiag.recording.records import SkippedFrame, Span

__all__ = ["uncompiled_findings"]

_Key = tuple[str | None, int | None, str]


def uncompiled_findings(run: RunRecords, before: Sequence[Finding]) -> tuple[Finding, ...]:
    """A finding for each function that was left, with the finding of ``before`` that tells why."""
    told = _explained_skips(run, before)
    compiled = any(graph.stage == "dynamo" for graph in run.graphs)
    found = []
    for frame in dict.fromkeys(run.skipped):
        cause = told.get(_key(frame.file, frame.line, frame.function))
        found.append(_finding(frame, run, cause, "note" if compiled or cause is not None else "warning"))
    return tuple(found)


def _finding(frame: SkippedFrame, run: RunRecords, cause: int | None, severity: str) -> Finding:
    function, span = original_name(frame.function), Span(frame.file, frame.line)
    reason = frame.reason or "no reason was recorded"
    if is_resume_function(frame.function):
        reason = f"what follows here, {reason}"
    return Finding(
        rule="uncompiled",
        id=None,
        identity=identity("uncompiled", None, function, (span,), run.sources),
        severity=severity,
        span=span,
        function=function,
        title=reason.split(": ")[0].split(". ")[0],
        cause=frame.reason or None,
        caused_by=cause,
        places=(span,),
        cost=Cost(functions_uncompiled=1),
        evidence=(Fact("why", reason),),
    )


def _explained_skips(run: RunRecords, before: Sequence[Finding]) -> dict[_Key, int]:
    """The finding that tells why a function was left: the break that it met, or its recompiles up to the limit."""
    met = {id_: index for index, item in enumerate(before) if item.rule != "recompile" for id_ in item.compile_ids}
    told = {
        _key(each.file, each.line, each.function): met[each.compile_id]
        for each in run.compiles
        if each.outcome == "skipped" and each.compile_id in met
    }
    for index, item in enumerate(before):
        if item.rule == "recompile-limit":
            told[_key(item.span.file, item.span.line, item.function)] = index
    return told


def _key(file: str | None, line: int | None, function: str) -> _Key:
    return (file, line, original_name(function))
