"""One report for the processes of a job: where they diverge, what they have in common, what only some of them have."""

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
from dynadiag.render.clean import clean_line
from dynadiag.render.components import labelled_lines
from dynadiag.render.findings import finding_text
from dynadiag.render.json_document import ExplainDocument, FindingDocument, ProcessDocument, document
from dynadiag.render.report import Report
from dynadiag.render.style import Style
from dynadiag.render.table import table
from dynadiag.render.wrap import truncate_middle, wrap_indented

__all__ = ["JobPart", "JobReport", "job_document", "job_text", "rank_document"]

_GRAVITY = ("error", "warning", "good", "note")  # of headlines, the gravest first
_MAX_SHOWN = 10  # findings of one set of ranks that a report shows without --all
_NAME = 60  # columns of a list of ranks


@dataclass(frozen=True, slots=True)
class JobPart:
    """Processes that are alike, and the explanation of the first of them."""

    processes: tuple[Process, ...]
    report: Report


@dataclass(frozen=True, slots=True)
class JobReport:
    """What is told of a job. ``waits`` are by rank, of the latest restart."""

    job: Job
    divergence: Divergence | None
    parts: tuple[JobPart, ...]
    waits: dict[int, Wait]


@dataclass(frozen=True, slots=True)
class _Merged:
    """A finding, with the parts of the job that have it. The first of them has its source."""

    finding: Finding
    parts: tuple[JobPart, ...]


def job_text(told: JobReport, style: Style, *, all_: bool = False, recordings: Sequence[str] = ()) -> str:
    """The report, with a line end. ``recordings`` are files, or a folder, to name in the command that ends it."""
    merged = _merged(told)
    lines = [*_headline(told, style), *_head(told, style), *_notes(told, style), ""]
    lines += _divergence(told, style, all_)
    lines += _ranks_table(told, style)
    for parts, found in _by_parts(merged):
        lines += _section(told, parts, found, style, all_)
    if recordings:
        lines.append(f"{style.paint('next:', 'help')} dynadiag browse {clean_line(shlex.join(recordings))}")
    return "\n".join(lines).rstrip("\n") + "\n"


def _headline(told: JobReport, style: Style) -> list[str]:
    if told.divergence is not None:
        text = told.divergence.text
        return [style.paint(line, "error") for line in wrap_indented("", _capital(f"{text}."), style.columns)]
    role = min((part.report.headline.severity for part in told.parts), key=_GRAVITY.index, default="error")
    return [
        style.paint(line, role if role in ("good", "error") else "break")
        for line in wrap_indented("", _sentence(told, role), style.columns)
    ]


def _sentence(told: JobReport, severity: str) -> str:
    """What the gravest of the processes come to, and which these are unless it holds for all."""
    grave = [part for part in told.parts if part.report.headline.severity == severity]
    if not grave:
        return "No recording could be read."
    sentences = dict.fromkeys(part.report.headline.sentence for part in grave)
    sentence = next(iter(sentences))
    if len(grave) == len(told.parts) and len(sentences) == 1:
        alike = len(told.parts) == 1
        each = f"{_all_of(told)} alike. " if alike else f"In each of {_all_of(told)}: "
        return f"{each}{sentence}" if not alike or len(grave[0].processes) > 1 else sentence
    if severity == "good" and len(grave) == len(told.parts):
        return f"No graph break in any of {_all_of(told)}."
    others = sum(len(part.processes) for part in grave if part.report.headline.sentence != sentence)
    named = _name(each for part in grave if part.report.headline.sentence == sentence for each in part.processes)
    more = " What others have is below." if others else ""
    return f"{_capital(named)}: {sentence}{more}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _all_of(told: JobReport) -> str:
    number = sum(len(part.processes) for part in told.parts)
    ranks = all(each.role == "rank" for part in told.parts for each in part.processes)
    return count(number, "rank") if ranks else f"{number} process" + ("es" if number > 1 else "")


def _head(told: JobReport, style: Style) -> list[str]:
    run = told.parts[0].report.run if told.parts else None
    hosts = sorted({each.host for each in told.job.processes if each.host})
    where = f" on {list_some(hosts)}" if len(hosts) > 1 else ""
    parts = [f"dynadiag {__version__}", f"torch {run.torch}" if run and run.torch else "torch unknown"]
    lead = truncate_middle(clean_line(", ".join([*parts, _all_of(told) + where])), style.columns * 3 // 4)
    target = clean_line(run.target) if run else ""
    return [f"{lead}: {style.paint(truncate_middle(target, max(style.columns - len(lead) - 2, 16)), 'strong')}"]


def _notes(told: JobReport, style: Style) -> Iterator[str]:
    job = told.job
    for each in job.unreadable:
        yield from labelled_lines("note", "strong", f"{each.name} cannot be read: {each.problem}", style)
    for restart in job.restarts:
        missing = job.missing(restart)
        if missing and (restart == 0 or len(missing) < (job.world_size or 0) // 2):
            again = f" after restart {restart}" if restart else ""
            yield from labelled_lines("note", "strong", f"{rank_list(missing)}{again}: no recording", style)
    if len(job.restarts) > 1:
        yield from labelled_lines("note", "strong", f"the job was started {count(len(job.restarts), 'time')}", style)
    notes = dict.fromkeys(note for part in told.parts for note in part.report.notes if not _is_of_end(note))
    for note in notes:
        yield from labelled_lines("note", "strong", note, style)


def _is_of_end(note: str) -> bool:
    """Whether a note is on how one process ended, which the table of ranks has."""
    return "cut short" in note


def _divergence(told: JobReport, style: Style, all_: bool) -> list[str]:
    if told.divergence is None or not told.parts:
        return []
    part = _part_of(told, told.divergence.ranks) or told.parts[0]
    finding = divergence_finding(told.divergence, dict(part.report.sources))
    return [*finding_text(finding, part.report, style, all_=all_), ""]


def _part_of(told: JobReport, ranks: Sequence[int]) -> JobPart | None:
    return next((part for part in told.parts if any(each.rank in ranks for each in part.processes)), None)


def _name(processes: Iterable[Process]) -> str:
    """``ranks 0-7``, or the names of processes that are no ranks."""
    listed = list(processes)
    ranks = [each.rank for each in listed if each.role == "rank" and each.rank is not None]
    restarts = sorted({each.restart for each in listed})
    again = f" (restart {list_some(list(map(str, restarts)))})" if restarts != [0] else ""
    return f"{rank_list(ranks)}{again}" if len(ranks) == len(listed) else list_some([each.name for each in listed])


def _ranks_table(told: JobReport, style: Style) -> list[str]:
    """A line for each set of alike ranks: what they compiled, how long, how long they waited."""
    if len(told.parts) < 2 and not told.waits:
        return []
    parts = told.parts
    reports = [part.report for part in parts]
    columns = [
        ("compiles", [str(len(each.compiles)) for each in reports]),
        ("graphs", [str(each.graph_count) for each in reports]),
        ("breaks", [str(each.break_count) for each in reports]),
        ("recompiles", [str(each.recompile_count) for each in reports]),
        ("compiling", [_range(each.trace.seconds for each in part.processes if each.trace) for part in parts]),
    ]
    if told.waits:
        found = [[told.waits[each.rank] for each in part.processes if each.rank in told.waits] for part in parts]
        columns.append(("waited", [_range(each.waited for each in waits) for waits in found]))
        columns.append(("kept others", [_range(each.imposed for each in waits) for waits in found]))
    return [*table([_name(part.processes) for part in parts], columns, style, _NAME), ""]


def _range(values: Iterable[float]) -> str:
    known = sorted(values)
    if not known:
        return "-"
    low, high = duration(known[0]), duration(known[-1])
    return low if low == high else f"{low} to {high}"


def _merged(told: JobReport) -> list[_Merged]:
    """The findings of all parts, each once, with the parts that have it."""
    found: dict[str, _Merged] = {}
    for part in told.parts:
        for item in part.report.findings:
            known = found.get(item.identity)
            if known is None:
                found[item.identity] = _Merged(item, (part,))
            elif part not in known.parts:
                found[item.identity] = replace(known, parts=(*known.parts, part))
    return list(found.values())


def _by_parts(merged: Sequence[_Merged]) -> list[tuple[tuple[JobPart, ...], list[Finding]]]:
    """The findings by who has them: first what all have."""
    found: dict[tuple[int, ...], tuple[tuple[JobPart, ...], list[Finding]]] = {}
    for item in merged:
        key = tuple(id(part) for part in item.parts)
        found.setdefault(key, (item.parts, []))[1].append(item.finding)
    return sorted(found.values(), key=lambda pair: -len(pair[0]))


def _section(
    told: JobReport, parts: Sequence[JobPart], found: Sequence[Finding], style: Style, all_: bool
) -> list[str]:
    """The findings that some processes share, without notes unless all are asked for."""
    shown = [item for item in found if all_ or item.severity != "note"]
    if not shown:
        return []
    report = parts[0].report
    lines: list[str] = []
    if len(told.parts) > 1:
        lines = [style.paint(_capital(_title(told, parts)), "strong"), ""]
    given: dict[str, Finding] = {}
    for item in shown if all_ else shown[:_MAX_SHOWN]:
        lines += [*finding_text(item, report, style, all_=all_, given=given), ""]
    if len(shown) > _MAX_SHOWN and not all_:
        lines += [style.paint(f"... and {count(len(shown) - _MAX_SHOWN, 'more finding')}; --all shows them", "dim"), ""]
    return lines


def _title(told: JobReport, parts: Sequence[JobPart]) -> str:
    names = _name(each for part in parts for each in part.processes)
    return f"all of them ({names}):" if len(parts) == len(told.parts) else f"only {names}:"


def job_document(told: JobReport, ranks: Sequence[ExplainDocument], main: ExplainDocument) -> ExplainDocument:
    """The contract's document of several processes: ``ranks`` are the documents of the ranks, ``main`` leads."""
    findings = [FindingDocument.of(item) for item in _all_findings(told)]
    return replace(
        main,
        findings=tuple(findings),
        ranks=tuple(ranks),
        divergence=told.divergence,
        processes=tuple(_process(told, each) for each in told.job.processes),
    )


def _all_findings(told: JobReport) -> list[Finding]:
    """The findings of the job in one list, each with its ranks and with `caused_by` led to its cause's new position."""
    merged = _merged(told)
    lead = 0 if told.divergence is None else 1
    position = {item.finding.identity: index + lead for index, item in enumerate(merged)}
    found = [] if told.divergence is None else [divergence_finding(told.divergence, {})]
    for item in merged:
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


def _process(told: JobReport, item: Process) -> ProcessDocument:
    wait = (
        told.waits.get(item.rank) if item.rank is not None and item.restart == max(told.job.restarts or (0,)) else None
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
        alike=next((index for index, part in enumerate(told.parts) if item in part.processes), None),
    )


def rank_document(report: Report, item: Process) -> ExplainDocument:
    """The document of one rank."""
    return replace(document(report, report.calls), rank=item.rank, exit_code=item.exit_code)
