"""The parts of a triage, one after the other: each can fail, and the others are still done."""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from dynadiag.bisection.document import BisectDocument, FailureDocument
from dynadiag.bisection.verdict import InterruptedSearch, Verdict
from dynadiag.commands import bisect_releases, common, outputs
from dynadiag.commands.bisect import find_culprits_of, new_trial_log
from dynadiag.commands.bisect_releases import ReleaseOptions
from dynadiag.commands.explain import explain_document
from dynadiag.commands.minify import program_text, reduce_to_repro, save_repro
from dynadiag.commands.progress import Alarm, ProgressPrinter
from dynadiag.commands.report import write_report
from dynadiag.commands.search_options import SearchOptions
from dynadiag.commands.target_options import RecordOptions, run_recorded
from dynadiag.errors import DynadiagError
from dynadiag.minify.minify_result import Interrupted, MinifyResult, minify_document, result_text
from dynadiag.minify.minimizer import HOOKS, RECORD
from dynadiag.render.json_document import ExplainDocument, encode
from dynadiag.render.printer import Printer
from dynadiag.triage.case import TriagedCase, lines_at_fault
from dynadiag.triage.document import LEFT_OUT, PartDocument, TriageDocument, redacted_bisect, redacted_minify
from dynadiag.triage.issue import describe_environment, issue_text, short_environment
from dynadiag.trial.program import Program, TargetError

_ISSUE, _JSON, _REPORT = "issue.md", "triage.json", "report.html"
_REPRO, _OUTPUT = "repro.py", "output.txt"
_RUN, _BISECT, _MINIFY = "run.dynadiag", "bisect.dynadiag", "minify.dynadiag"
_VERSIONS = "versions.dynadiag"
_OF_RELEASES = "versions-torch-*.dynadiag"  # the trials with each release, beside the recording of the search
FILES = (_ISSUE, _JSON, _REPORT, _REPRO, _OUTPUT, _RUN, _BISECT, _MINIFY, _VERSIONS)
_NO_VERDICT = 5
_OUT_OF_TIME = "the time of --budget was used up"
_MIN_SECONDS = 1.0  # seconds that a part needs to be begun
_SHARES = {"explain": 0.25, "bisect": 0.5, "minify": 1.0, "versions": 1.0}  # of the seconds that are left
# Seconds that are reserved for the environment, the page and the issue: they take 30 s on a busy machine.
_SECONDS_TO_WRITE, _SHARE_TO_WRITE = 45.0, 0.15
_GRACE = 1 / 3  # of these seconds: a part that used up its own is interrupted only after them
_MAX_OUTPUT = 1 << 20  # bytes of the end of an output
_NOT_MINIFIED = {
    "passes": "the program does not fail",
    "fails_uncompiled": "the program fails uncompiled too",
    "flaky": "the program does not fail every time; --repeat N tries each candidate up to N times",
}


def files_in(folder: Path) -> list[Path]:
    """The files in a folder that have names of a triage's."""
    named = [*(folder / name for name in FILES), *folder.glob(_OF_RELEASES)]
    return [path for path in named if path.exists() or path.is_symlink()]


def check_replaceable(folder: Path) -> None:
    """Raise `DynadiagError` if a file with a name of a triage's is not what a triage wrote."""
    files = files_in(folder)
    known: object = {}
    if folder / _JSON in files:
        outputs.check_writable(folder / _JSON, force=False, kind=outputs.DOCUMENT)
        with suppress(ValueError, AttributeError):
            known = json.loads((folder / _JSON).read_bytes()).get("files")
    for path in files:
        if path.name != _JSON and not (isinstance(known, dict) and known.get(path.name) == _digest(path)):
            raise DynadiagError(f"{path} is not what a triage wrote there: move it, or name another folder")


def _digest(path: Path) -> str | None:
    """The digest of a file; ``None`` if it is no plain file."""
    if path.is_symlink() or not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


@dataclass(slots=True)
class TriageRun:
    """A triage that is running. ``folder`` is for others to read, ``kept`` has the recordings and the repro."""

    program: Program
    args: argparse.Namespace
    folder: Path
    kept: Path
    progress: ProgressPrinter
    began: float = field(default_factory=time.monotonic)
    parts: list[PartDocument] = field(default_factory=list)
    recordings: list[Path] = field(default_factory=list)
    interrupted: bool = False
    explained: ExplainDocument | None = None
    verdict: Verdict | None = None
    minified: MinifyResult | None = None
    releases: BisectDocument | None = None

    @property
    def exit_code(self) -> int:
        """That of the verdict; 130 after Ctrl-C."""
        if self.interrupted:
            return common.INTERRUPTED
        return _NO_VERDICT if self.verdict is None else self.verdict.exit_code

    def run(self) -> TriageDocument:
        """Do one part after the other, and write the folder. Raises `TargetError` if the target is not a program."""
        self._part("explain", self._explain, _RUN, _OUTPUT)
        self._part("bisect", self._bisect, _BISECT)
        verdict = self.verdict.verdict if self.verdict else ""
        self._part("minify", self._minify, _MINIFY, _REPRO, skip=_NOT_MINIFIED.get(verdict))
        if self._asks_for_releases:
            why = "the program fails uncompiled too" if verdict == "fails_uncompiled" else None
            self._part("versions", self._search_releases, _VERSIONS, skip=why)
        environment = self._environment()
        self._part("report", self._write_report, _REPORT, always=True)
        self._part("issue", lambda: self._write_issue(environment), _ISSUE, always=True)
        document = self._document()
        outputs.write_file(self.folder / _JSON, encode(document), force=True)
        return document

    def _part(
        self, name: str, make: Callable[[], str | None], *files: str, skip: str | None = None, always: bool = False
    ) -> None:
        """Do a part and note how it ended. ``make`` returns why the part was not done in full, or ``None``."""
        began = time.monotonic()
        left = None if always else self._seconds_for(name)
        if not always:
            skip = skip or ("interrupted before it began" if self.interrupted else None)
            skip = skip or (_OUT_OF_TIME if left is not None and left < _MIN_SECONDS else None)
        status, reason = ("skipped", skip) if skip else self._run_part(name, make, left)
        if reason:
            self.progress.message(f"triage: {name} {status}: {reason}")
        present = tuple(each for each in files if (self.folder / each).exists())
        self.parts.append(PartDocument(name, status, reason, round(time.monotonic() - began, 2), present))

    def _run_part(self, name: str, make: Callable[[], str | None], left: float | None) -> tuple[str, str | None]:
        """Do a part within its time. Returns its status, and the reason if it is not done."""
        self.progress.message(f"triage: {name}")
        alarm = Alarm(None if left is None else left + _GRACE * self._seconds_to_write)
        try:
            with alarm:
                reason = make()
        except TargetError:
            raise
        except KeyboardInterrupt:
            if alarm.went_off:
                return "failed", _OUT_OF_TIME
            self.interrupted = True
            return "interrupted", "Ctrl-C or SIGTERM"
        except Exception as error:  # noqa: BLE001 - whatever ends one part, the others are still of use
            return "failed", f"{type(error).__name__}: {error}"
        return ("failed" if reason else "done"), reason

    def _seconds_for(self, part: str) -> float | None:
        """The seconds that a part may take: a share of those that are left, without those for writing at the end."""
        budget = self.args.budget
        if budget is None:
            return None
        left = budget - self._seconds_to_write - (time.monotonic() - self.began)
        share = _SHARES[part] * (0.5 if part == "minify" and self._asks_for_releases else 1.0)
        return float(left * share)

    @property
    def _seconds_to_write(self) -> float:
        return min(_SECONDS_TO_WRITE, _SHARE_TO_WRITE * (self.args.budget or 0.0))

    @property
    def _asks_for_releases(self) -> bool:
        return bool(self.args.torch or self.args.python)

    def _options(self, part: str) -> SearchOptions:
        return replace(SearchOptions.of(self.args), budget=self._seconds_for(part), force=True)

    def _explain(self) -> str | None:
        options = RecordOptions(self.args.target, self.args.fresh)
        left = self._seconds_for("explain")
        limit = self.args.timeout if left is None else min(left, self.args.timeout)
        recording = self.kept / _RUN
        with outputs.opened_log(self.kept / _OUTPUT) as file, self.progress.first_run(limit):
            streams = (file.fileno(), file.fileno())
            ran = run_recorded(self.program, recording, options, streams=streams, limit=limit)
        ended, paths = ran.ended, ran.keep()
        self.recordings += paths
        if not ended.has_journal:
            return "the program removed its recording"
        self.explained = explain_document(paths, paths[0])
        if ended.interrupted:
            raise KeyboardInterrupt
        return f"the program was stopped after {limit:.0f} s" if ended.seconds >= limit else None

    def _bisect(self) -> str | None:
        options = self._options("bisect")
        log = new_trial_log("bisect", self.program, options, self.kept / _BISECT)
        try:
            self.verdict = find_culprits_of(self.program, options, log, self.progress, HOOKS, RECORD)  # as minify
        except InterruptedSearch as interrupt:
            self.verdict = interrupt.verdict
            raise
        finally:
            self._add_recording(_BISECT)
        return "; ".join(self.verdict.notes) if self.verdict.verdict == "stopped" else None

    def _minify(self) -> str | None:
        options, output = self._options("minify"), self.kept / _REPRO
        if self.verdict is not None:
            options = replace(options, resume=self.kept / _BISECT)  # the first runs are the same
        log = new_trial_log("minify", self.program, options, self.kept / _MINIFY)
        try:
            self.minified = reduce_to_repro(self.program, options, log, self.progress, output, follow_up=True)
        except Interrupted as interrupt:
            self.minified = save_repro(interrupt.result, output, force=False)
            raise
        finally:
            self._add_recording(_MINIFY)
        return None if self.minified.proved else result_text(self.minified, Printer()).splitlines()[0]

    def _search_releases(self) -> str | None:
        """Search with the repro if it is proved: it is quick, and needs nothing but torch."""
        repro, output = self.kept / _REPRO, self.kept / _VERSIONS
        proved = self.minified is not None and self.minified.proved
        options = replace(ReleaseOptions.of(self.args), search=self._options("versions"))
        try:
            report = (
                bisect_releases.search_with_repro(repro, options, output, self.progress)
                if proved
                else bisect_releases.search_releases(self.program, options, output, self.progress)
            )
        finally:
            self._add_recording(_VERSIONS)
        self.releases = report.document()
        if self.minified is not None and proved:
            named = replace(self.minified.with_versions(self.releases), versions=None)
            self.minified = save_repro(named, repro, force=False)
        return None

    def _add_recording(self, name: str) -> None:
        if (self.kept / name).exists():
            self.recordings.append(self.kept / name)

    def _environment(self) -> str:
        found: list[str] = []

        def ask() -> str | None:
            found.append(describe_environment(redact=self.args.redact))
            return None

        interrupted = "interrupted before it began" if self.interrupted else None
        self._part("environment", ask, skip=interrupted, always=True)  # an issue needs it, and it takes seconds
        return found[0] if found else short_environment()

    def _write_report(self) -> str | None:
        if not self.recordings:
            return "nothing was recorded"
        with outputs.writing(self.folder / _REPORT, force=True) as scratch:
            write_report(self.recordings, scratch, redact=self.args.redact)
        return None

    def _write_issue(self, environment: str) -> str | None:
        verdict, redact, shown = self.verdict, self.args.redact, self._document()
        case = TriagedCase(
            bisect=shown.bisect,
            minify=shown.minify,
            versions=shown.versions,
            explain=self.explained,
            parts=shown.parts,
            environment=environment,
            repro=self.minified.text if self.minified and not redact else "",
            repro_name=_REPRO,
            program="" if redact else program_text(self.program),
            own_lines=lines_at_fault(shown.bisect) if shown.bisect and not redact else (),
            output="" if redact else _end_of(self.kept / _OUTPUT),
            repro_output=self.minified.printed if self.minified and not redact else "",
            shown=FailureDocument.of(self.minified.reduced) if self.minified and not redact else None,
            command=verdict.command.replace(self.program.target, self.program.target.removeprefix(f"{Path.cwd()}/"), 1)
            if verdict
            else "",
            is_function=self.program.name is not None,
            accuracy=self.args.accuracy,
            redacted=redact,
        )
        outputs.write_file(self.folder / _ISSUE, issue_text(case).encode("utf-8", "backslashreplace"), force=True)
        return None

    def _document(self) -> TriageDocument:
        redact = self.args.redact
        bisect = self.verdict.document() if self.verdict else None
        minify = minify_document(self.minified, self.program.text) if self.minified else None
        parts = [replace(each, reason=each.reason and LEFT_OUT) for each in self.parts] if redact else self.parts
        return TriageDocument(
            torch=bisect.torch if bisect else self.explained.torch if self.explained else None,
            target=LEFT_OUT if redact else self.program.text,
            reproduced=bisect is not None and bisect.failure is not None,
            explain=None if redact else self.explained,
            bisect=redacted_bisect(bisect) if bisect and redact else bisect,
            minify=redacted_minify(minify) if minify and redact else minify,
            versions=redacted_bisect(self.releases) if self.releases and redact else self.releases,
            issue=self._shown(_ISSUE),
            report=self._shown(_REPORT),
            redacted=redact,
            parts=tuple(parts),
            files={path.name: str(_digest(path)) for path in files_in(self.folder) if path.name != _JSON},
            seconds=round(time.monotonic() - self.began, 2),
        )

    def _shown(self, name: str) -> str | None:
        """The path of a file in the folder; its name if the triage is redacted."""
        path = self.folder / name
        return None if not path.exists() else name if self.args.redact else str(path)


def _end_of(path: Path) -> str:
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _MAX_OUTPUT))
        return file.read().decode(errors="replace")
