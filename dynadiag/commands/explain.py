"""Explain what torch.compile did with a program: every graph, guard, break and recompile, in its own lines.

TARGET is a program (FILE.py, -m pkg.mod, FILE.py:NAME, pkg.mod:NAME), which is run and recorded; or recordings
(*.dynadiag), a TORCH_TRACE log, or a folder of either, which is read without running anything; or the id of a graph
break (GB0124), which is explained. Options come before a program; words after it belong to it.

A program of several processes (torchrun, mp.spawn) leaves one recording for each process that compiles or joins a
process group. They get one report: where the ranks diverge first and why, what all have in common, and what only some
have. In the JSON, the documents of the ranks are under "ranks", and where they diverge under "divergence".

The exit code is the program's own, 128 + N if signal N ended it; 0 if nothing was run.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from dynadiag.capture.launch import launch_counted
from dynadiag.commands import common, outputs
from dynadiag.commands.target_options import (
    RecordOptions,
    add_recorder_options,
    add_target,
    add_value_options,
    exit_code,
    named_recordings,
    parse_program,
    python_command,
    run_recorded,
)
from dynadiag.errors import DynadiagError, UnreadableInput, UnwritableOutput, discard_stdout
from dynadiag.explanation.coverage import COVERAGE, Coverage, FunctionCoverage
from dynadiag.explanation.formatting import list_some
from dynadiag.explanation.registry import Registry
from dynadiag.explanation.warm_up import no_warm_up
from dynadiag.job.comparison import find_divergence, group_alike
from dynadiag.job.processes import Job, Process, open_job
from dynadiag.job.waits import Wait, measure_waits
from dynadiag.kernels.memory import Memory, read_memory
from dynadiag.recording.journal import Journal
from dynadiag.recording.opening import open_recording
from dynadiag.recording.reader import Recording
from dynadiag.render.job import JobPart, JobReport, job_document, job_text, rank_document
from dynadiag.render.json_document import ExplainDocument, document, encode
from dynadiag.render.listings import ListingPrinter
from dynadiag.render.memory import memory_text
from dynadiag.render.report import Report, explanation_text, report
from dynadiag.trial.sandbox import cache_variables

_COMPILE_ID = re.compile(r"!?\d+/\d+(/\d+)?(_\d+)?(#\d+)?")
_OPTIONS_WITH_VALUE = (
    *("-o", "--output", "--json", "--stop-after", "--seconds", "--after", "--limit", "--target"),
    *("--calls", "--nodes", "--full", "--values-limit"),
)
_MAX_BROWSED = 6  # recordings that the command at the end names
_BREAK_ID = re.compile(r"GB\d+", re.IGNORECASE)


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    outputs.add_json(parser)
    outputs.add_output(parser, "the recording to write")
    common.add_flag(parser, "--all", "show everything, not only the first ten of each kind")
    listing = parser.add_mutually_exclusive_group()
    common.add_flag(listing, "--guards", "list the guards of each compile instead of the report")
    told = "show as a tree where compiles start; with a COMPILE (0/0) the nodes of its graphs"
    listing.add_argument("--graphs", nargs="?", const="", metavar="COMPILE", help=told)
    told = "show what each compiled training graph saves for its backward, by line and module"
    common.add_flag(listing, "--memory", told)
    told = "run the program once more and count its operator calls in graphs and outside of them"
    common.add_flag(parser, "--coverage", told)
    told = "run the graphs as AOTAutograd leaves them: breaks and recompiles are the same, and come sooner"
    common.add_flag(parser, "--no-codegen", told)
    told = "report only what is compiled after N calls of the first compiled function"
    also = "0 reports all, also of a program that calls dynadiag.warm()"
    parser.add_argument("--after", type=int, metavar="N", help=f"{told}; {also}")
    add_recorder_options(parser)
    add_value_options(parser)
    add_target(parser)


def arrange_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with ``--graphs TARGET`` told apart from ``--graphs COMPILE``."""
    found, place = list(arguments), 0
    while place < len(found) and found[place].startswith("-") and found[place] not in ("-m", "--", "--graphs"):
        place += 2 if found[place] in _OPTIONS_WITH_VALUE else 1
    if found[place : place + 1] == ["--graphs"]:
        value = found[place + 1 : place + 2]
        if value and _COMPILE_ID.fullmatch(value[0]):
            found[place : place + 2] = [f"--graphs={value[0]}"]
        else:
            found[place] = "--graphs="
    return found


def run(args: argparse.Namespace) -> int:
    if not args.target:
        raise DynadiagError("explain: name a program, a recording, a log, or the id of a graph break")
    if args.after is not None and args.after < 0:
        raise DynadiagError(f"explain: --after {args.after}: give a number of calls, 0 or more")
    if not args.module and _BREAK_ID.fullmatch(args.target):
        return _explain_id(args)
    readable = named_recordings(args)
    if readable is not None:
        if args.coverage:
            raise DynadiagError(
                f"explain: --coverage runs a program, and {args.target[:200]} is only read: leave --coverage out "
                "(counts that a recording has are shown anyway)"
            )
        _report(readable, args)
        return 0
    return _run_program(args)


def _run_program(args: argparse.Namespace) -> int:
    program = parse_program(args)
    recording = outputs.new_recording(args.output, program.text, force=args.force)
    ran = run_recorded(program, recording, RecordOptions.of(args))
    if args.coverage and not ran.ended.interrupted:
        print("dynadiag: --coverage runs the program a second time", file=sys.stderr, flush=True)  # noqa: T201
        with tempfile.TemporaryDirectory(prefix="dynadiag-") as scratch:
            folder = Path(scratch, "counts")
            folder.mkdir()
            command = python_command(program, args.target, Path(scratch, "refusal"), args.gpu)
            variables = cache_variables(Path(scratch)) if args.fresh else {}
            ended = launch_counted(command, folder, RecordOptions.of(args).settings(), variables)
            found = [msgspec.json.decode(each.read_bytes(), type=Counts) for each in sorted(folder.glob("*.json"))]
        coverage = merge_counts(found, _note(found, ended.exit_code, ran.ended.exit_code))
        journal = Journal.reopen(ran.journal)
        journal.append({COVERAGE: {}}, msgspec.json.encode(coverage).decode(), past_limit=True)
        journal.close()
    paths = ran.keep()
    failed = 0
    try:
        if paths:
            _report(paths, args, paths[0])
    except (UnreadableInput, UnwritableOutput) as error:  # a full disk: the exit code is the program's all the same
        common.print_error(str(error))
    except DynadiagError as error:
        common.print_error(str(error))
        failed = 2
    except OSError as error:  # of stdout: `| head` has closed it, or its disk is full
        discard_stdout()
        if not isinstance(error, BrokenPipeError):
            common.print_error(f"output: {error.strerror or error}")
            failed = 2
    for path in paths[:1]:
        common.print_path(path)
    return exit_code(ran.ended) or failed


def _explain_id(args: argparse.Namespace) -> int:
    from dynadiag.render.listings import entry_json, entry_text

    entry = Registry.installed().lookup(args.target)
    if args.json != "-":
        common.print_text(entry_text(entry, common.printer_for(sys.stdout)))
    common.write_json(args.json, entry_json(entry))
    return 0


def _report(paths: Sequence[Path], args: argparse.Namespace, main: Path | None = None) -> None:
    """Report one recording, or those of several processes as one job. ``main`` is the program's own."""
    if args.guards or args.memory or args.graphs is not None or not (reader := _job_reader(paths, args, main)):
        _report_one(main or paths[0], args)
        return
    job = reader.report()
    if args.json != "-":
        shown = [_displayed(path) for path in _paths_to_browse(job, args.target)]
        common.print_text(job_text(job, common.printer_for(sys.stdout, all_=args.all), recordings=shown))
    if args.json is not None:
        common.write_json(args.json, encode(reader.document(job)))


def _paths_to_browse(job: JobReport, target: str) -> list[Path]:
    """The folder if one was named, else a recording of each set of alike processes."""
    if Path(target).is_dir():
        return [Path(target)]
    return [part.processes[0].path for part in job.parts[:_MAX_BROWSED]]


def _job_reader(paths: Sequence[Path], args: argparse.Namespace, main: Path | None) -> JobReader | None:
    """Read the recordings as one job. Returns None for one recording that is reported by itself.

    A folder with one recording is a job if its rank waited for ranks that left no recording.
    """
    if len(paths) > 1:
        return JobReader(paths, main, after=args.after)
    if main is not None or not Path(args.target).is_dir():
        return None
    reader = JobReader(paths)
    return reader if find_divergence(reader.job) is not None else None


def explain_document(paths: Sequence[Path], main: Path | None = None) -> ExplainDocument:
    """Return the document of one recording, or of those of several processes as one job."""
    if len(paths) > 1:
        reader = JobReader(paths, main)
        return reader.document(reader.report())
    with open_recording(paths[0]) as recording:
        explanation = report(recording)
    return document(explanation, explanation.calls)


def _report_one(path: Path, args: argparse.Namespace) -> None:
    with open_recording(path) as recording:
        explanation = report(recording, after=args.after)
        if why := no_warm_up(args.after or None, explanation.warm_up):
            common.print_error(f"--after {args.after}: {why}; all is reported")
        memory = read_memory(recording) if args.memory else None
        text = _text(explanation, recording, path, args, memory)
    common.write_result(args.json, encode(document(explanation, explanation.calls, memory)), lambda _: text)


def _text(
    explanation: Report, recording: Recording, path: Path, args: argparse.Namespace, memory: Memory | None
) -> str:
    """The report, or the listing that the options ask for."""
    printer = common.printer_for(sys.stdout, all_=args.all)
    if memory is not None:
        return memory_text(memory, printer, explanation.run.cwd)
    if args.guards:
        return ListingPrinter(explanation, printer).guards()
    if args.graphs is None:
        shown = _displayed(path)
        return explanation_text(explanation, printer, recording=shown, calls=explanation.calls)
    if not args.graphs:
        return ListingPrinter(explanation, printer).tree()
    known = [each.compile_id for each in explanation.compiles]
    if args.graphs not in known:
        raise DynadiagError(f"explain: no compile {args.graphs} is in {path}, which has {list_some(known) or 'none'}")
    return ListingPrinter(explanation, printer).graphs(args.graphs, recording.nodes)


def _displayed(path: Path) -> str:
    return str(path) if path.is_absolute() else os.path.relpath(path)


class Counts(msgspec.Struct):
    """What one process leaves: for each function its file, line, name, and compiled and uncompiled calls."""

    functions: list[tuple[str, int | None, str, int, int]]
    outside: int


def _note(found: Sequence[Counts], code: int, first: int) -> str | None:
    """What the counts lack, if anything."""
    if not found:
        return (
            f"nothing was counted: the second run ended with exit code {code} before Python's own end (os._exit, a "
            "signal), never imported torch, or uses torch's profiler itself"
        )
    if code != first:
        return f"the second run, which was counted, ended with exit code {code}, the first with {first}"
    return None


def merge_counts(found: Iterable[Counts], note: str | None = None) -> Coverage:
    """Return the counts of all processes together. Functions with the most uncompiled calls come first."""
    sums: dict[tuple[str, int | None, str], list[int]] = {}
    outside = 0
    for counts in found:
        outside += counts.outside
        for file, line, function, compiled, uncompiled in counts.functions:
            pair = sums.setdefault((file, line, function), [0, 0])
            pair[0] += compiled
            pair[1] += uncompiled
    rows = [FunctionCoverage(name, file, line, *pair) for (file, line, name), pair in sums.items()]
    rows.sort(key=lambda row: -row.uncompiled)
    return Coverage(sum(row.compiled for row in rows), sum(row.uncompiled for row in rows), outside, tuple(rows), note)


_MAX_EXPLAINED = 32  # ranks that are each explained for the JSON; with more, equal ranks share a document


class JobReader:
    """The recordings of several processes. ``main`` is the one that leads the JSON; without it the first rank."""

    def __init__(self, paths: Sequence[Path], main: Path | None = None, *, after: int | None = 0) -> None:
        """Read the recordings. Raises `UnreadableInput` if none of them can be read."""
        self.job = open_job(paths)
        self._after = after
        self._main = main
        self._reports: dict[Path, Report] = {}
        if not self._reported():
            raise UnreadableInput(self.job.processes[0].problem or f"{paths[0]}: nothing was recorded")

    def _reported(self) -> list[Process]:
        """The processes of the report: all but a launcher that compiled nothing itself."""
        read = [each for each in self.job.processes if each.trace is not None]
        return [each for each in read if each.role == "rank" or (each.trace and each.trace.steps)] or read

    def report(self) -> JobReport:
        parts = [JobPart(group, self._explain(group[0].path)) for group in self._groups()]
        return JobReport(self.job, find_divergence(self.job), tuple(parts), _waits(self.job))

    def _groups(self) -> list[tuple[Process, ...]]:
        """The sets of alike processes: ranks by restart, then the others."""
        processes = self._reported()
        found: list[tuple[Process, ...]] = []
        for restart in self.job.restarts:
            found += group_alike([each for each in processes if each.role == "rank" and each.restart == restart])
        return found + list(group_alike([each for each in processes if each.role != "rank"]))

    def document(self, job: JobReport) -> ExplainDocument:
        lead = self._main if self.job.ranks else self._main or self._reported()[0].path
        ranks = self.job.ranks or tuple(each for each in self._reported() if each.path != lead)
        first = {each.path: part.processes[0] for part in job.parts for each in part.processes}
        shown = [each if len(ranks) <= _MAX_EXPLAINED else first.get(each.path, each) for each in ranks]
        documents = [rank_document(self._explain(one.path), each) for one, each in zip(shown, ranks, strict=True)]
        main = None if lead is None else self._explain(lead)
        return job_document(job, documents, documents[0] if main is None else document(main, main.calls))

    def _explain(self, path: Path) -> Report:
        if path not in self._reports:
            with open_recording(path) as recording:
                self._reports[path] = report(recording, after=self._after)
        return self._reports[path]


def _waits(job: Job) -> dict[int, Wait]:
    """The waits of the ranks of the latest restart."""
    latest = max(job.restarts, default=0)
    return measure_waits([each for each in job.ranks if each.restart == latest])
