"""Explain, bisect and minify a failing program in one go, and write an issue that is ready to post.

With --torch A..B the repro is also tried with these releases of torch, which are installed if --yes agrees to it.

FOLDER gets issue.md (in the form of PyTorch's template), triage.json, report.html, repro.py, what the program printed,
and the recordings. Each part can fail: the others are still there, and the issue and the JSON say which one is missing
and why. After Ctrl-C or SIGTERM, or when --budget is used up, what was found so far is written.

--redact leaves out everything that the program's author wrote: source, names, messages, values, paths. The recordings
and the repro are then kept beside your other recordings, not in FOLDER.

TARGET is FILE.py, -m pkg.mod, FILE.py:NAME or pkg.mod:NAME. Options come before it; words after it belong to the
program. Exit code: that of the verdict, as bisect (0 found, 3 it does not fail, 4 it fails uncompiled too, 5 no culprit
is sure); 2 usage error; 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from dynadiag.bisection.document import BisectDocument
from dynadiag.bisection.verdict import Verdict
from dynadiag.commands import bisect_releases, common
from dynadiag.commands.bisect import add_search_options, find_culprits_of, new_trial_log
from dynadiag.commands.explain import explain_document
from dynadiag.commands.minify import reduce_to_repro, written
from dynadiag.commands.progress import ProgressPrinter
from dynadiag.commands.report import write_report
from dynadiag.commands.target_options import add_target, parse_program, run_recorded
from dynadiag.errors import DynadiagError
from dynadiag.minify.minify_result import MinifyResult, minify_document, result_text, sizes
from dynadiag.minify.minimizer import Interrupted
from dynadiag.recording.opening import fold_in_place
from dynadiag.render.clean import clean_line
from dynadiag.render.json_document import ExplainDocument, encode
from dynadiag.render.style import Style
from dynadiag.triage.document import PartDocument, TriageDocument
from dynadiag.triage.environment import describe_environment, short_environment
from dynadiag.triage.issue import TriagedCase, issue_text
from dynadiag.triage.redaction import LEFT_OUT, redacted_bisect, redacted_minify
from dynadiag.trial.program import Program, TargetError

_ISSUE, _JSON, _REPORT = "issue.md", "triage.json", "report.html"
_REPRO, _OUTPUT = "repro.py", "output.txt"
_RUN, _BISECT, _MINIFY = "run.dynadiag", "bisect.dynadiag", "minify.dynadiag"
_VERSIONS = "versions.dynadiag"
_FILES = (_ISSUE, _JSON, _REPORT, _REPRO, _OUTPUT, _RUN, _BISECT, _MINIFY, _VERSIONS)
_NO_VERDICT = 5
_MIN_SECONDS = 1.0  # seconds that a part needs to be begun
_MAX_OUTPUT = 1 << 20  # bytes of the end of an output
_NOT_MINIFIED = {
    "passes": "the program does not fail",
    "fails_uncompiled": "the program fails uncompiled too",
    "flaky": "the program does not fail every time; --repeat N tries each candidate up to N times",
}


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    common.add_json(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="the folder to make")
    parser.add_argument("--force", action="store_true", help="write into an existing folder")
    parser.add_argument("--redact", action="store_true", help="leave out source, names, messages, values and paths")
    add_search_options(parser)
    parser.set_defaults(resume=None, metric=None, most=None, prune=False)
    bisect_releases.add_release_range(parser)
    add_target(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    program = parse_program(args)
    common.check_json_path(args.json)
    folder, made = _folder(args, program)
    kept = _private_folder(program) if args.redact else folder
    ending = signal.signal(signal.SIGTERM, signal.default_int_handler)  # a job's time limit: as after Ctrl-C
    try:
        with ProgressPrinter(sys.stderr) as progress:
            triage = _Triage(program, args, folder, kept, progress)
            document = triage.run()
    except DynadiagError:
        for each in {folder, kept} if made else {kept} - {folder}:
            shutil.rmtree(each, ignore_errors=True)
        raise
    finally:
        signal.signal(signal.SIGTERM, ending)
    _report(triage, document, args)
    if kept != folder:
        progress.message(f"not in the folder, as they show the program: {kept}")
    common.print_path(folder)
    return triage.exit_code


def _folder(args: argparse.Namespace, program: Program) -> tuple[Path, bool]:
    """Make the folder. Returns it, and whether it was not there before."""
    folder: Path = args.output or common.new_recording(None, f"triage-{Path(program.target).stem}", force=False)
    folder = folder.absolute() if args.output else folder.with_suffix("")
    exists = folder.exists()
    if exists and not (args.force and folder.is_dir()):
        cure = "name a folder" if args.force else "give another name, or --force to write into it"
        raise DynadiagError(f"{args.output} exists: {cure}")
    if not folder.parent.is_dir():
        raise DynadiagError(f"{args.output}: there is no folder {folder.parent}")
    try:
        folder.mkdir(exist_ok=True)
        for name in _FILES:
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise DynadiagError(f"cannot write {folder}: {error.strerror}") from error
    return folder, not exists


def _private_folder(program: Program) -> Path:
    kept = common.new_recording(None, f"triage-{Path(program.target).stem}-kept", force=False).with_suffix("")
    kept.mkdir()
    return kept


@dataclass(slots=True)
class _Triage:
    """A triage under way. ``folder`` is handed over, ``kept`` has the recordings and the repro."""

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
            return 130
        return _NO_VERDICT if self.verdict is None else self.verdict.exit_code

    def run(self) -> TriageDocument:
        """Do one part after the other, and write the folder. Raises `TargetError` if the target is no program."""
        self._part("explain", self._explain, _RUN, _OUTPUT)
        self._part("bisect", self._bisect, _BISECT)
        self._part("minify", self._minify, _MINIFY, _REPRO, skip=self._why_not_minified())
        if self.args.torch or self.args.python:
            self._part("versions", self._search_releases, _VERSIONS, skip=self._why_not_searched())
        environment = self._environment()
        self._part("report", self._write_report, _REPORT, always=True)
        self._part("issue", lambda: self._write_issue(environment), _ISSUE, always=True)
        document = self._document()
        (self.folder / _JSON).write_bytes(encode(document))
        return document

    def _part(
        self, name: str, make: Callable[[], str | None], *files: str, skip: str | None = None, always: bool = False
    ) -> None:
        """Do a part and note how it ended. ``make`` returns why the part was not done in full, or ``None``."""
        began, status, reason = time.monotonic(), "done", None
        if not always:
            skip = skip or ("interrupted before it began" if self.interrupted else None)
            left = self._seconds_left()
            skip = skip or ("the time of --budget was used up" if left is not None and left < _MIN_SECONDS else None)
        try:
            if skip is None:
                self.progress.message(f"triage: {name}")
                reason = make()
                status = "failed" if reason else "done"
            else:
                status, reason = "skipped", skip
        except KeyboardInterrupt:
            self.interrupted, status, reason = True, "interrupted", "Ctrl-C"
        except TargetError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever ends one part, the others are still of use
            status, reason = "failed", f"{type(error).__name__}: {error}"
        if reason:
            self.progress.message(f"triage: {name} {status}: {reason}")
        present = tuple(each for each in files if (self.folder / each).exists())
        self.parts.append(PartDocument(name, status, reason, round(time.monotonic() - began, 2), present))

    def _seconds_left(self) -> float | None:
        budget = self.args.budget
        return None if budget is None else budget - (time.monotonic() - self.began)

    def _options(self) -> argparse.Namespace:
        return argparse.Namespace(**vars(self.args) | {"budget": self._seconds_left(), "force": True})

    def _explain(self) -> str | None:
        options = argparse.Namespace(
            target=self.args.target, fresh=self.args.fresh, no_source=False, stop_after=None, limit=2.0, gpu=None
        )
        left = self._seconds_left()
        limit = self.args.timeout if left is None else min(left, self.args.timeout)
        recording = self.kept / _RUN
        with (self.kept / _OUTPUT).open("wb") as file:
            streams = (file.fileno(), file.fileno())
            ended = run_recorded(self.program, recording, options, streams=streams, limit=limit)
        paths = (recording, *ended.other_journals)
        for path in paths:
            fold_in_place(path)
        self.recordings += paths
        self.explained = explain_document(paths, recording)
        if ended.interrupted:
            raise KeyboardInterrupt
        return f"the program was stopped after {limit:.0f} s" if ended.seconds >= limit else None

    def _bisect(self) -> str | None:
        options = self._options()
        rows = new_trial_log("bisect", self.program, options, self.kept / _BISECT)
        try:
            self.verdict = find_culprits_of(self.program, options, rows, self.progress)
        finally:
            self._add_recording(_BISECT)
        return None

    def _why_not_minified(self) -> str | None:
        return None if self.verdict is None else _NOT_MINIFIED.get(self.verdict.verdict)

    def _minify(self) -> str | None:
        options, output = self._options(), self.kept / _REPRO
        if self.verdict is not None:
            options.resume = self.kept / _BISECT  # the first runs are the same
        rows = new_trial_log("minify", self.program, options, self.kept / _MINIFY)
        try:
            self.minified = reduce_to_repro(self.program, options, rows, self.progress, output)
        except Interrupted as interrupt:
            self.minified = written(interrupt.result, output)
            raise
        finally:
            self._add_recording(_MINIFY)
        return None if self.minified.proved else result_text(self.minified, Style()).splitlines()[0]

    def _why_not_searched(self) -> str | None:
        verdict = self.verdict.verdict if self.verdict else None
        return "the program fails uncompiled too" if verdict == "fails_uncompiled" else None

    def _search_releases(self) -> str | None:
        """Search with the repro if it is proved: it is quick, and needs nothing but torch."""
        program, options = self.program, self._options()
        if self.minified is not None and self.minified.proved:
            program, options.accuracy = Program(str(self.kept / _REPRO)), False
        try:
            self.releases = bisect_releases.search_releases(
                program, options, self.kept / _VERSIONS, self.progress
            ).document()
        finally:
            self._add_recording(_VERSIONS)
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
        write_report(self.recordings, self.folder / _REPORT, redact=self.args.redact)
        return None

    def _write_issue(self, environment: str) -> str | None:
        text = issue_text(self._case(environment))
        (self.folder / _ISSUE).write_text(text, encoding="utf-8", errors="backslashreplace")
        return None

    def _case(self, environment: str) -> TriagedCase:
        verdict, redact = self.verdict, self.args.redact
        shown = self._document()
        return TriagedCase(
            bisect=shown.bisect,
            minify=shown.minify,
            versions=shown.versions,
            explain=self.explained,
            parts=shown.parts,
            environment=environment,
            repro=self.minified.text if self.minified and not redact else "",
            repro_name=_REPRO,
            output="" if redact else _end_of(self.kept / _OUTPUT),
            repro_output=self.minified.printed if self.minified and not redact else "",
            command=verdict.command if verdict else "",
            is_function=self.program.name is not None,
            accuracy=self.args.accuracy,
            redacted=redact,
        )

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
            seconds=round(time.monotonic() - self.began, 2),
        )

    def _shown(self, name: str) -> str | None:
        """The path of a file of the folder; redacted, its name."""
        path = self.folder / name
        return None if not path.exists() else name if self.args.redact else str(path)


def _end_of(path: Path) -> str:
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _MAX_OUTPUT))
        return file.read().decode(errors="replace")


def _report(triage: _Triage, document: TriageDocument, args: argparse.Namespace) -> None:
    common.write_json(args.json, encode(document))
    if args.json == "-":
        return
    style = common.style_for(sys.stdout)
    lines = ["no verdict" if triage.verdict is None else triage.verdict.text(style).splitlines()[0]]
    if triage.minified is not None and triage.minified.text:
        lines.append(f"repro: {sizes(triage.minified)}, {'proved' if triage.minified.proved else 'not proved'}")
    lines += [f"{each.name}: {each.status}: {clean_line(each.reason or '')}" for each in triage.parts if each.reason]
    lines += ["", *(f"  {name}" for name in _FILES if (triage.folder / name).exists())]
    common.print_text("\n".join(lines) + "\n")
