"""One report for the processes of a job: where they diverge, what all of them have, what only some have."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from dynadiag import __version__
from dynadiag.explanation.findings import Finding
from dynadiag.explanation.formatting import count, duration, list_some
from dynadiag.job import Divergence, Job, Process, divergence_finding, rank_list
from dynadiag.job.ended import describe_end
from dynadiag.job.waits import Wait
from dynadiag.recording.records import CUT_SHORT
from dynadiag.render.clean import clean_line
from dynadiag.render.components import labelled_lines
from dynadiag.render.findings import finding_text
from dynadiag.render.json_document import ExplainDocument, FindingDocument, ProcessDocument, document
from dynadiag.render.report import Report
from dynadiag.render.style import Style
from dynadiag.render.table import table
from dynadiag.render.wrap import truncate_middle, wrap_indented

__all__ = ["JobPart", "JobReport", "job_document", "job_text", "rank_document"]

_SEVERITIES = ("error", "warning", "good", "note")  # of headlines, the most severe first
_MAX_SHOWN = 10  # findings of one set of ranks that a report shows without --all
_MAX_NAME = 60  # columns of a list of ranks


@dataclass(frozen=True, slots=True)
class JobPart:
    """Processes that are alike, and the explanation of the first of them."""

    processes: tuple[Process, ...]
    report: Report


@dataclass(frozen=True, slots=True)
class JobReport:
    """What a report of a job is made from. ``waits`` are those of the latest restart, by rank."""

    job: Job
    divergence: Divergence | None
    parts: tuple[JobPart, ...]
    waits: dict[int, Wait]


@dataclass(frozen=True, slots=True)
class _SharedFinding:
    """A finding, with the parts of the job that have it. The first of them has its source."""

    finding: Finding
    parts: tuple[JobPart, ...]


def job_text(report: JobReport, style: Style, *, all_: bool = False, recordings: Sequence[str] = ()) -> str:
    """The report, with a line end. Its last line is a command to type next, which names ``recordings``."""
    shared = _shared_findings(report)
    lines = [*_headline(report, style), *_head(report, style), *_notes(report, style), ""]
    lines += _divergence(report, style, all_)
    lines += _ranks_table(report, style)
    for parts, found in _by_parts(shared):
        lines += _section(report, parts, found, style, all_)
    if recordings:
        lines.append(f"{style.paint('next:', 'help')} dynadiag browse {clean_line(shlex.join(recordings))}")
    return "\n".join(lines).rstrip("\n") + "\n"


def _headline(report: JobReport, style: Style) -> list[str]:
    if report.divergence is not None:
        text = report.divergence.text
        return [style.paint(line, "error") for line in wrap_indented("", _capitalized(f"{text}."), style.columns)]
    role = min((part.report.headline.severity for part in report.parts), key=_SEVERITIES.index, default="error")
    return [
        style.paint(line, role if role in ("good", "error") else "break")
        for line in wrap_indented("", _sentence(report, role), style.columns)
    ]


def _sentence(report: JobReport, severity: str) -> str:
    """The headline of the processes that are worst off, and which these are unless it holds for all."""
    worst = [part for part in report.parts if part.report.headline.severity == severity]
    if not worst:
        return "No recording could be read."
    sentences = dict.fromkeys(part.report.headline.sentence for part in worst)
    sentence = next(iter(sentences))
    if len(worst) == len(report.parts) and len(sentences) == 1:
        alike = len(report.parts) == 1
        each = f"{_all_of(report)} alike. " if alike else f"In each of {_all_of(report)}: "
        return f"{each}{sentence}" if not alike or len(worst[0].processes) > 1 else sentence
    if severity == "good" and len(worst) == len(report.parts):
        return f"No graph break in any of {_all_of(report)}."
    others = sum(len(part.processes) for part in worst if part.report.headline.sentence != sentence)
    named = _process_names(
        each for part in worst if part.report.headline.sentence == sentence for each in part.processes
    )
    more = " What others have is below." if others else ""
    return f"{_capitalized(named)}: {sentence}{more}"


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _all_of(report: JobReport) -> str:
    number = sum(len(part.processes) for part in report.parts)
    ranks = all(each.role == "rank" for part in report.parts for each in part.processes)
    return count(number, "rank" if ranks else "process")


def _head(report: JobReport, style: Style) -> list[str]:
    run = report.parts[0].report.run if report.parts else None
    hosts = sorted({each.host for each in report.job.processes if each.host})
    where = f" on {list_some(hosts)}" if len(hosts) > 1 else ""
    parts = [f"dynadiag {__version__}", f"torch {run.torch}" if run and run.torch else "torch unknown"]
    lead = truncate_middle(clean_line(", ".join([*parts, _all_of(report) + where])), style.columns * 3 // 4)
    target = clean_line(run.target) if run else ""
    return [f"{lead}: {style.paint(truncate_middle(target, max(style.columns - len(lead) - 2, 16)), 'strong')}"]


def _notes(report: JobReport, style: Style) -> Iterator[str]:
    job = report.job
    for each in job.unreadable:
        yield from labelled_lines("note", "strong", f"{each.name} cannot be read: {each.problem}", style)
    for restart in job.restarts:
        missing = job.missing(restart)
        if missing and (restart == 0 or len(missing) < (job.world_size or 0) // 2):
            again = f" after restart {restart}" if restart else ""
            yield from labelled_lines("note", "strong", f"{rank_list(missing)}{again}: no recording", style)
    if job.restarts and job.restarts[-1]:
        yield from labelled_lines("note", "strong", f"the job was started {job.restarts[-1] + 1} times", style)
    notes = dict.fromkeys(note for part in report.parts for note in part.report.notes if note != CUT_SHORT)
    for note in notes:  # the divergence says which ranks were cut short
        yield from labelled_lines("note", "strong", note, style)


def _divergence(report: JobReport, style: Style, all_: bool) -> list[str]:
    if report.divergence is None or not report.parts:
        return []
    part = _part_of(report, report.divergence.ranks) or report.parts[0]
    finding = divergence_finding(report.divergence, dict(part.report.sources))
    return [*finding_text(finding, part.report, style, all_=all_), ""]


def _part_of(report: JobReport, ranks: Sequence[int]) -> JobPart | None:
    return next((part for part in report.parts if any(each.rank in ranks for each in part.processes)), None)


def _process_names(processes: Iterable[Process]) -> str:
    """``ranks 0-7``, or the names of processes that are no ranks."""
    listed = list(processes)
    ranks = [each.rank for each in listed if each.role == "rank" and each.rank is not None]
    restarts = sorted({each.restart for each in listed})
    again = f" (restart {list_some(list(map(str, restarts)))})" if restarts != [0] else ""
    return f"{rank_list(ranks)}{again}" if len(ranks) == len(listed) else list_some([each.name for each in listed])


def _ranks_table(report: JobReport, style: Style) -> list[str]:
    """A line for each set of alike ranks: what they compiled, how long that took, how long they waited."""
    if len(report.parts) < 2 and not report.waits:
        return []
    parts = report.parts
    reports = [part.report for part in parts]
    columns = [
        ("compiles", [str(len(each.compiles)) for each in reports]),
        ("graphs", [str(each.graph_count) for each in reports]),
        ("breaks", [str(each.break_count) for each in reports]),
        ("recompiles", [str(each.recompile_count) for each in reports]),
        ("compiling", [_range(each.trace.seconds for each in part.processes if each.trace) for part in parts]),
    ]
    if report.waits:
        found = [[report.waits[each.rank] for each in part.processes if each.rank in report.waits] for part in parts]
        columns.append(("waited", [_range(each.waited for each in waits) for waits in found]))
        columns.append(("kept others", [_range(each.imposed for each in waits) for waits in found]))
    return [*table([_process_names(part.processes) for part in parts], columns, style, _MAX_NAME), ""]


def _range(values: Iterable[float]) -> str:
    known = sorted(values)
    if not known:
        return "-"
    low, high = duration(known[0]), duration(known[-1])
    return low if low == high else f"{low} to {high}"


def _shared_findings(report: JobReport) -> list[_SharedFinding]:
    """The findings of all parts, each once, with the parts that have it."""
    found: dict[str, _SharedFinding] = {}
    for part in report.parts:
        for item in part.report.findings:
            known = found.get(item.identity)
            if known is None:
                found[item.identity] = _SharedFinding(item, (part,))
            elif part not in known.parts:
                found[item.identity] = replace(known, parts=(*known.parts, part))
    return list(found.values())


def _by_parts(shared: Sequence[_SharedFinding]) -> list[tuple[tuple[JobPart, ...], list[Finding]]]:
    """The findings by the parts that have them, first those that all parts have."""
    found: dict[tuple[int, ...], tuple[tuple[JobPart, ...], list[Finding]]] = {}
    for item in shared:
        key = tuple(id(part) for part in item.parts)
        found.setdefault(key, (item.parts, []))[1].append(item.finding)
    return sorted(found.values(), key=lambda pair: -len(pair[0]))


def _section(
    report: JobReport, parts: Sequence[JobPart], found: Sequence[Finding], style: Style, all_: bool
) -> list[str]:
    """The findings that these processes share. Notes are among them with ``all_`` only."""
    shown = [item for item in found if all_ or item.severity != "note"]
    if not shown:
        return []
    explanation = parts[0].report
    lines: list[str] = []
    if len(report.parts) > 1:
        lines = [style.paint(_capitalized(_title(report, parts)), "strong"), ""]
    advised: dict[str, Finding] = {}
    for item in shown if all_ else shown[:_MAX_SHOWN]:
        lines += [*finding_text(item, explanation, style, all_=all_, advised=advised), ""]
    if len(shown) > _MAX_SHOWN and not all_:
        lines += [style.paint(f"... and {count(len(shown) - _MAX_SHOWN, 'more finding')}; --all shows them", "dim"), ""]
    return lines


def _title(report: JobReport, parts: Sequence[JobPart]) -> str:
    names = _process_names(each for part in parts for each in part.processes)
    return f"all of them ({names}):" if len(parts) == len(report.parts) else f"only {names}:"


def job_document(report: JobReport, ranks: Sequence[ExplainDocument], main: ExplainDocument) -> ExplainDocument:
    """The document of several processes: that of the main one, with ``ranks``, the documents of the ranks."""
    findings = [FindingDocument.of(item) for item in _all_findings(report)]
    return replace(
        main,
        findings=tuple(findings),
        ranks=tuple(ranks),
        divergence=report.divergence,
        processes=tuple(_process(report, each) for each in report.job.processes),
    )


def _all_findings(report: JobReport) -> list[Finding]:
    """The findings of the job in one list, each with its ranks. `caused_by` is a position in this list."""
    shared = _shared_findings(report)
    lead = 0 if report.divergence is None else 1
    position = {item.finding.identity: index + lead for index, item in enumerate(shared)}
    found = [] if report.divergence is None else [divergence_finding(report.divergence, {})]
    for item in shared:
        listed = item.parts[0].report.findings
        cause = item.finding.caused_by
        ranks = tuple(sorted({each.rank for part in item.parts for each in part.processes if each.rank is not None}))
        found.append(
            replace(
                item.finding,
                ranks=ranks or None,
                caused_by=None if cause is None else position[listed[cause].identity],
            )
        )
    return found


def _process(report: JobReport, item: Process) -> ProcessDocument:
    wait = (
        report.waits.get(item.rank)
        if item.rank is not None and item.restart == max(report.job.restarts or (0,))
        else None
    )
    return ProcessDocument(
        role=item.role,
        rank=item.rank,
        host=item.host,
        restart=item.restart,
        pid=item.pid,
        recording=str(item.path),
        problem=item.problem,
        complete=item.complete,
        exit_code=item.exit_code,
        ended=describe_end(item),
        compile_seconds=item.trace.seconds if item.trace else None,
        waited_seconds=wait.waited if wait else None,
        imposed_wait_seconds=wait.imposed if wait else None,
        alike=next((index for index, part in enumerate(report.parts) if item in part.processes), None),
    )


def rank_document(report: Report, item: Process) -> ExplainDocument:
    """The document of one rank, for `job_document`."""
    return replace(document(report, report.calls), rank=item.rank, exit_code=item.exit_code)
