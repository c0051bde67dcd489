"""Calls of `torch.export` and of AOTInductor that failed, as findings: the line, what decides it, and what helps.

torch reports an expression of symbols that it made (``zuf0 > 1.0``), or a `Dim` that it found to be a constant, and
names no line for it. The recording has the line of each symbol and of each guard on one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dynadiag.explanation.export_case import ExportCase, qualified
from dynadiag.explanation.export_remedies import EXPORTS
from dynadiag.explanation.findings import Advice, Cost, Fact, Finding
from dynadiag.explanation.formatting import count, list_some
from dynadiag.explanation.identity import identity
from dynadiag.explanation.number_remedies import number_advice
from dynadiag.explanation.remedy import advise
from dynadiag.explanation.rules import Rule
from dynadiag.explanation.run_end import read_frames
from dynadiag.explanation.run_records import Export, RunRecords
from dynadiag.explanation.source import ExplainedRecording, event_data
from dynadiag.recording.code_origin import is_generated_file
from dynadiag.recording.json_values import int_or_none, list_or_empty, text_or_none
from dynadiag.recording.records import EXPORT, Span
from dynadiag.recording.torch_text.expressions import undecided_in

_MOST_LINES = 3  # lines with guards on a size, or with calls, that are told


def read_exports(recording: ExplainedRecording) -> tuple[Export, ...]:
    """Read the exports in their order, the one that did not end last, then what drafts of them assumed.

    A draft whose sizes violate a constraint is begun again, by torch, with `Dim.AUTO` for each `Dim`: what it began
    with is an assumption too, and stands before it.
    """
    found: list[Export] = []
    drafts: dict[int, Export] = {}  # by the event of their end
    begun, open_ = 0, None
    for event, data in event_data(recording, "dynadiag_export"):
        if data.get("outcome") == "begun":
            begun, open_ = begun + 1, replace(_export(f"{EXPORT}{begun}", data), is_open=True)
            if data.get("again") and found:
                found[-1] = replace(found[-1], error=None, assumed="")
        else:
            ended, open_ = _export(f"{EXPORT}{max(begun - 1, 0)}", data), None
            if found and _call_that_failed(found[-1]) == _call_that_failed(ended) is not None:
                found.pop()  # the exception was recorded on its way, and again as it ended the program
            found.append(ended)
            if ended.api.endswith("draft_export") and ended.error is None:
                drafts[event.index] = ended
    if open_ is not None:
        found.append(open_)
    return (*found, *_assumptions(recording, drafts)) if drafts else tuple(found)


def _call_that_failed(export: Export) -> tuple[object, ...] | None:
    return None if export.error is None else (export.id, export.api, export.callers, export.contents)


def _assumptions(recording: ExplainedRecording, drafts: Mapping[int, Export]) -> Iterator[Export]:
    """What drafts went on with, as exports of their own: without a draft each would fail there."""
    named = {each.id: each for each in drafts.values()}
    for each in recording.symbols():
        if each.event == "assumed" and each.compile_id in named and each.expression:
            yield replace(
                named[each.compile_id],
                stack=each.user_stack,
                condition=each.expression,
                symbols=undecided_in(each.expression),
                assumed=each.value or "",
            )
    told = dict[Export, None]()
    for event, data in event_data(recording, "dynadiag_missing_kernel"):
        draft = next((each for end, each in drafts.items() if end > event.index), None)
        frames = read_frames(data.get("stack"))
        if draft is not None:
            inner = tuple(each for each in frames[len(draft.callers) :] if not is_generated_file(each.file))
            told[replace(draft, stack=inner, operator=qualified(str(data.get("op"))), assumed="")] = None
    yield from told


def _export(id_: str, data: Mapping[str, Any]) -> Export:
    strict, shapes = data.get("strict"), data.get("shapes")
    shapes = shapes if isinstance(shapes, dict) else {}
    return Export(
        id=id_,
        api=str(data.get("api")),
        strict=strict if isinstance(strict, bool) else None,
        file=text_or_none(data.get("file")),
        line=int_or_none(data.get("line")),
        function=text_or_none(data.get("function")) or "a program",
        callers=read_frames(data.get("callers")),
        stack=tuple(each for each in read_frames(data.get("stack")) if not is_generated_file(each.file)),
        error=text_or_none(data.get("error")),
        message=text_or_none(data.get("message")) or "",
        condition=text_or_none(data.get("condition")),
        symbols=tuple(map(str, list_or_empty(data.get("symbols")))),
        contents=text_or_none(data.get("contents")),
        shapes=text_or_none(shapes.get("right")),
        wrong_shape=text_or_none(shapes.get("wrong")),
    )


def export_findings(run: RunRecords, told: set[str]) -> tuple[Finding, ...]:
    """A finding for each way in which exports failed, and for each assumption of a draft.

    ``told`` are the exports that a break tells of. Where Dynamo's own compile failed, that is told.
    """
    failed = {each.reason.partition("\n")[0] for each in run.compiles if each.outcome == "error" and each.reason}
    groups: dict[tuple[object, ...], list[ExportCase]] = {}
    for each in run.exports:
        is_new = each.id not in told and each.message.partition("\n")[0] not in failed
        if each.assumed is not None or (each.error is not None and is_new):
            case = ExportCase(each, run)
            groups.setdefault((each.function, case.span, case.why, each.assumed), []).append(case)
    return tuple(_finding(cases) for cases in groups.values())


def _finding(cases: Sequence[ExportCase]) -> Finding:
    case, export = cases[0], cases[0].export
    rule = Rule.FAILED_COMPILE if export.assumed is None else Rule.ASSUMED
    called = (*export.callers, *export.stack)
    return Finding(
        rule=rule,
        id=None,
        identity=identity(rule, None, export.function, (case.span,), case.run.sources, export.api),
        severity="error" if export.assumed is None else "warning",
        span=case.span,
        function=export.function,
        title=_title(case),
        cause=case.why,
        places=(case.span,),
        cost=Cost(functions_uncompiled=export.assumed is None),
        advice=_advice(case),
        evidence=tuple(_evidence(cases)),
        called=tuple(frame for frame in called if (frame.file, frame.line) != (case.span.file, case.span.line)),
    )


def _title(case: ExportCase) -> str:
    export = case.export
    if export.assumed is None:
        doing = _DOING.get(export.api.rpartition(".")[2])
        return f"{doing or f'exporting {export.function}'} failed"
    if export.operator:
        return f"the draft ran `{export.operator}` on the example: an export fails there"
    if case.constraints:
        return "the draft takes each `Dim` for `Dim.AUTO`: an export fails here"
    condition = case.decision.condition if case.decision and case.decision.condition else export.condition
    return f"the draft takes `{condition}` to be {export.assumed}, as in the example: an export fails there"


_DOING = {
    "aoti_compile_and_package": "compiling the exported program",
    "aot_compile": "compiling the exported program",
    "aoti_load_package": "loading the package",
    "load": "loading the exported program",
    "save": "saving the exported program",
}


def _advice(case: ExportCase) -> tuple[Advice, ...]:
    torch, decision = case.run.run.torch, case.decision
    given = advise(EXPORTS, case, torch=torch)
    if given or decision is None or case.tensor_condition is not None:
        return given
    return number_advice(replace(decision, is_captured=True, is_exported=True), torch=torch)


def _evidence(cases: Sequence[ExportCase]) -> Iterator[Fact]:
    case, export = cases[0], cases[0].export
    if export.error:
        yield Fact("raised", export.error)
    yield from _calls(cases)
    if export.condition and export.condition not in case.why:
        yield Fact("asked", f"`{export.condition}`, of numbers without a value")
    guards = case.guards if case.constraints else ()
    for guard in guards[:_MOST_LINES]:
        frame = guard.user_stack[-1]
        yield Fact("made so by", f"`{case.written(guard)}`", Span(frame.file, frame.line))
    if case.constraints and case.operation:
        yield Fact("operation", f"`{case.operation}`")
    if len(guards) > _MOST_LINES:
        yield Fact("and", f"{count(len(guards) - _MOST_LINES, 'more line')} with guards on it")


def _calls(cases: Sequence[ExportCase]) -> Iterator[Fact]:
    """What was called; with the lines, where several lines call it."""
    called = {(each.export.call, each.export.callers[-1:]): None for each in cases}
    if len({callers for _, callers in called}) == 1:
        yield Fact("in", list_some(list(dict.fromkeys(call for call, _ in called))))
        return
    for call, callers in list(called)[:_MOST_LINES]:
        yield Fact("in", call, Span(callers[0].file, callers[0].line) if callers else None)
    if len(called) > _MOST_LINES:
        yield Fact("and", count(len(called) - _MOST_LINES, "more call"))
