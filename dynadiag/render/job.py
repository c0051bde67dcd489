"""One report for the processes of a job: where they diverge, what all of them have, what only some have."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from dynadiag import __version__
from dynadiag.explanation.findings import Finding
from dynadiag.explanation.formatting import count, duration, list_some
from dynadiag.job.divergence import Divergence, divergence_finding
from dynadiag.job.ended import describe_end
from dynadiag.job.processes import Job, Process
from dynadiag.job.ranks import rank_list
from dynadiag.job.waits import Wait
from dynadiag.recording.records import CUT_SHORT
from dynadiag.render.clean import clean_line
from dynadiag.render.findings import FindingPrinter, finding_text
from dynadiag.render.json_document import ExplainDocument, FindingDocument, ProcessDocument, document, document_of
from dynadiag.render.printer import Printer
from dynadiag.render.report import Report
from dynadiag.render.table import table
from dynadiag.render.wrap import truncate_middle

_SEVERITIES = ("error", "warning", "good", "note")  # of headlines, the most severe first
_MAX_SHOWN = 10  # findings of one set of ranks that a report shows without --all
_MAX_NAME = 60  # columns of a list of ranks


@dataclass(frozen=True, slots=True)
class JobPart:
    """Processes that are alike, and the explanation of the first of them."""

    processes: tuple[Process, ...]
    report: Report

    def has(self, ranks: Sequence[int]) -> bool:
        """Whether one of these ranks is among the processes."""
        return any(each.rank in ranks for each in self.processes)


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


def job_text(report: JobReport, printer: Printer, *, recordings: Sequence[str] = ()) -> str:
    """The report, with a line end. Its last line is a command to type next, which names ``recordings``."""
    lines = list(_JobPrinter(report, printer).lines())
    if recordings:
        lines.append(f"{printer.paint('next:', 'help')} dynadiag browse {clean_line(shlex.join(recordings))}")
    return "\n".join(lines).rstrip("\n") + "\n"


@dataclass(frozen=True, slots=True)
class _JobPrinter:
    """Prints the report of a job."""

    report: JobReport
    printer: Printer

    def lines(self) -> Iterator[str]:
        """The answer, what was run, notes, the divergence, a table of the ranks, and the findings by their ranks."""
        yield from self._headline()
        yield self._head()
        for note in self._notes():
            yield from self.printer.labelled("note", note)
        yield ""
        report = self.report
        if report.divergence is not None and report.parts:
            part = next((part for part in report.parts if part.has(report.divergence.ranks)), report.parts[0])
            finding = divergence_finding(report.divergence, dict(part.report.sources))
            yield from (*finding_text(finding, part.report, self.printer), "")
        if len(report.parts) > 1 or report.waits:
            yield from (*self._ranks_table(), "")
        found: dict[tuple[int, ...], tuple[tuple[JobPart, ...], list[Finding]]] = {}
        for item in _shared_findings(report):
            key = tuple(id(part) for part in item.parts)
            found.setdefault(key, (item.parts, []))[1].append(item.finding)
        for parts, findings in sorted(found.values(), key=lambda pair: -len(pair[0])):
            yield from self._section(parts, findings)

    def _headline(self) -> list[str]:
        report = self.report
        if report.divergence is not None:
            role, text = "error", _capitalized(f"{report.divergence.text}.")
        else:
            severities = (part.report.headline.severity for part in report.parts)
            severity = min(severities, key=_SEVERITIES.index, default="error")
            role, text = severity if severity in ("good", "error") else "break", self._sentence(severity)
        return [self.printer.paint(line, role) for line in self.printer.wrap(text)]

    def _sentence(self, severity: str) -> str:
        """The headline of the processes that are worst off, and which these are unless it holds for all."""
        parts = self.report.parts
        worst = [part for part in parts if part.report.headline.severity == severity]
        if not worst:
            return "No recording could be read."
        sentences = dict.fromkeys(part.report.headline.sentence for part in worst)
        sentence = next(iter(sentences))
        if len(worst) == len(parts) and len(sentences) == 1:
            alike = len(parts) == 1
            lead = f"{self._count()} alike. " if alike else f"In each of {self._count()}: "
            return f"{lead}{sentence}" if not alike or len(worst[0].processes) > 1 else sentence
        if severity == "good" and len(worst) == len(parts):
            return f"No graph break in any of {self._count()}."
        same = [part for part in worst if part.report.headline.sentence == sentence]
        more = " What others have is below." if len(same) < len(worst) else ""
        return f"{_capitalized(_process_names(each for part in same for each in part.processes))}: {sentence}{more}"

    def _count(self) -> str:
        processes = [each for part in self.report.parts for each in part.processes]
        return count(len(processes), "rank" if all(each.role == "rank" for each in processes) else "process")

    def _head(self) -> str:
        run = self.report.parts[0].report.run if self.report.parts else None
        hosts = sorted({each.host for each in self.report.job.processes if each.host})
        where = f" on {list_some(hosts)}" if len(hosts) > 1 else ""
        torch = f"torch {run.torch}" if run and run.torch else "torch unknown"
        lead = clean_line(", ".join([f"dynadiag {__version__}", torch, self._count() + where]))
        lead = truncate_middle(lead, self.printer.columns * 3 // 4)
        target = truncate_middle(clean_line(run.target) if run else "", max(self.printer.columns - len(lead) - 2, 16))
        return f"{lead}: {self.printer.paint(target, 'strong')}"

    def _notes(self) -> Iterator[str]:
        job = self.report.job
        for unreadable in job.unreadable:
            yield f"{unreadable.name} cannot be read: {unreadable.problem}"
        for restart in job.restarts:
            missing = job.missing(restart)
            if missing and (restart == 0 or len(missing) < (job.world_size or 0) // 2):
                again = f" after restart {restart}" if restart else ""
                yield f"{rank_list(missing)}{again}: no recording"
        if job.restarts and job.restarts[-1]:
            yield f"the job was started {job.restarts[-1] + 1} times"
        notes = (note for part in self.report.parts for note in part.report.notes)
        yield from dict.fromkeys(note for note in notes if note != CUT_SHORT)  # the divergence says who was cut short

    def _ranks_table(self) -> list[str]:
        """A line for each set of alike ranks: what they compiled, how long that took, how long they waited."""
        parts, waits = self.report.parts, self.report.waits
        reports = [part.report for part in parts]
        columns = [
            ("compiles", [str(len(each.compiles)) for each in reports]),
            ("graphs", [str(each.graph_count) for each in reports]),
            ("breaks", [str(each.break_count) for each in reports]),
            ("recompiles", [str(each.recompile_count) for each in reports]),
            ("compiling", [_range(each.trace.seconds for each in part.processes if each.trace) for part in parts]),
        ]
        if waits:
            by_part = [[waits[each.rank] for each in part.processes if each.rank in waits] for part in parts]
            columns.append(("waited", [_range(wait.waited for wait in those) for those in by_part]))
            columns.append(("kept others", [_range(wait.imposed for wait in those) for those in by_part]))
        return table([_process_names(part.processes) for part in parts], columns, self.printer, _MAX_NAME)

    def _section(self, parts: Sequence[JobPart], findings: Sequence[Finding]) -> Iterator[str]:
        """The findings that these processes share. Notes are among them with ``--all`` only."""
        shown = [item for item in findings if self.printer.all_ or item.severity != "note"]
        if shown and len(self.report.parts) > 1:
            names = _process_names(each for part in parts for each in part.processes)
            title = f"all of them ({names}):" if len(parts) == len(self.report.parts) else f"only {names}:"
            yield from (self.printer.paint(_capitalized(title), "strong"), "")
        findings_printer = FindingPrinter(parts[0].report, self.printer)
        for item in self.printer.first(shown, _MAX_SHOWN):
            yield from (*findings_printer.finding(item), "")
        if len(shown) > _MAX_SHOWN and not self.printer.all_:
            more = count(len(shown) - _MAX_SHOWN, "more finding")
            yield from (self.printer.paint(f"... and {more}; --all shows them", "dim"), "")


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _process_names(processes: Iterable[Process]) -> str:
    """``ranks 0-7``, or the names of processes that are no ranks."""
    listed = list(processes)
    ranks = [each.rank for each in listed if each.role == "rank" and each.rank is not None]
    restarts = sorted({each.restart for each in listed})
    again = f" (restart {list_some(list(map(str, restarts)))})" if restarts != [0] else ""
    return f"{rank_list(ranks)}{again}" if len(ranks) == len(listed) else list_some([each.name for each in listed])


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
    return document_of(
        ProcessDocument,
        item,
        recording=str(item.path),
        ended=describe_end(item),
        compile_seconds=item.trace.seconds if item.trace else None,
        waited_seconds=wait.waited if wait else None,
        imposed_wait_seconds=wait.imposed if wait else None,
        alike=next((index for index, part in enumerate(report.parts) if item in part.processes), None),
    )


def rank_document(report: Report, item: Process) -> ExplainDocument:
    """The document of one rank, for `job_document`."""
    return replace(document(report, report.calls), rank=item.rank, exit_code=item.exit_code)
