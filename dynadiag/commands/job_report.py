"""Read the recordings of several processes and make one report of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dynadiag.errors import UnreadableInput
from dynadiag.job import Job, Process, find_divergence, group_alike, open_job
from dynadiag.job.waits import Wait, measure_waits
from dynadiag.recording.opening import open_recording
from dynadiag.render.job import JobPart, JobReport, job_document, rank_document
from dynadiag.render.json_document import ExplainDocument, document
from dynadiag.render.report import Report, report

_MAX_EXPLAINED = 32  # ranks that are each explained for the JSON; with more, equal ranks share a document


class JobReader:
    """The recordings of several processes. ``main`` is the one that leads the JSON; without it the first rank."""

    def __init__(self, paths: Sequence[Path], main: Path | None = None) -> None:
        """Read the recordings. Raises `UnreadableInput` if none of them can be read."""
        self.job = open_job(paths)
        self._main = main
        self._reports: dict[Path, Report] = {}
        if not self._reported():
            raise UnreadableInput(self.job.processes[0].problem or f"{paths[0]}: nothing was recorded")

    def _reported(self) -> list[Process]:
        """The processes of the report: all but a launcher that compiled nothing itself."""
        read = [each for each in self.job.processes if each.trace is not None]
        return [each for each in read if each.role == "rank" or (each.trace and each.trace.steps)] or read

    def report(self) -> JobReport:
        """Return the report of the job."""
        parts = [JobPart(group, self._explain(group[0])) for group in self._groups()]
        return JobReport(self.job, find_divergence(self.job), tuple(parts), _waits(self.job))

    def _groups(self) -> list[tuple[Process, ...]]:
        """The sets of alike processes: ranks by restart, then the others."""
        processes = self._reported()
        found: list[tuple[Process, ...]] = []
        for restart in self.job.restarts:
            found += group_alike([each for each in processes if each.role == "rank" and each.restart == restart])
        return found + list(group_alike([each for each in processes if each.role != "rank"]))

    def document(self, job: JobReport) -> ExplainDocument:
        """Return the document of the job."""
        lead = self._main if self.job.ranks else self._main or self._reported()[0].path
        ranks = self.job.ranks or tuple(each for each in self._reported() if each.path != lead)
        first = {each.path: part.processes[0] for part in job.parts for each in part.processes}
        documents = [
            rank_document(self._explain(each if len(ranks) <= _MAX_EXPLAINED else first.get(each.path, each)), each)
            for each in ranks
        ]
        main = None if lead is None else self._explain_path(lead)
        return job_document(job, documents, documents[0] if main is None else document(main, main.calls))

    def _explain(self, item: Process) -> Report:
        return self._explain_path(item.path)

    def _explain_path(self, path: Path) -> Report:
        if path not in self._reports:
            with open_recording(path) as recording:
                self._reports[path] = report(recording)
        return self._reports[path]


def _waits(job: Job) -> dict[int, Wait]:
    """The waits of the ranks of the latest restart."""
    latest = max(job.restarts, default=0)
    return measure_waits([each for each in job.ranks if each.restart == latest])
