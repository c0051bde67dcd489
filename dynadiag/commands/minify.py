"""Write a small program with the same failure as yours, and prove that it is the same.

The program is run, and the graph that fails is captured with its inputs. If it fails in Dynamo, before there is a
graph, its source is reduced instead. Everything that the failure does not need is removed, each step tried in a process
of its own. The rest is written as one short file that imports only torch, and libraries that the failure needs. The
proof runs that file in a fresh process with fresh caches, where it must fail like your program, and uncompiled, where
it must pass.

--torch A..B tries the proved repro with these releases of torch, and writes in its header since when it fails.

TARGET is FILE.py, -m pkg.mod, FILE.py:NAME or pkg.mod:NAME. Options come before it; words after it belong to the
program. Exit code: 0 written and proved, 3 the program does not fail, 4 it fails uncompiled too, 5 it fails but not
every time, 6 the proof failed, or nothing could be reduced, 2 usage error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from dynadiag.bisection.document import FailureDocument
from dynadiag.bisection.trial_log import TrialLog
from dynadiag.commands import bisect_releases, common, outputs
from dynadiag.commands.bisect import new_trial_log, trial_search
from dynadiag.commands.bisect_releases import ReleaseOptions
from dynadiag.commands.progress import ProgressPrinter
from dynadiag.commands.search_options import SearchOptions, add_resume, add_search_options, linked_file
from dynadiag.commands.target_options import add_target, parse_program
from dynadiag.errors import DynadiagError
from dynadiag.explanation.formatting import first_line
from dynadiag.minify.minify_result import Interrupted, MinifyResult, minify_document, result_text, sizes
from dynadiag.minify.minimizer import HOOKS, MinifyRequest, minify
from dynadiag.render.clean import clean_line
from dynadiag.render.json_document import encode
from dynadiag.triage.case import TriagedCase
from dynadiag.triage.issue import environment_or_versions, issue_text
from dynadiag.trial.program import Program


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    outputs.add_json(parser)
    outputs.add_output(parser, "the repro to write")
    outputs.add_file_option(parser, "--recording", "the recording of the search")
    add_search_options(parser)
    add_resume(parser)
    outputs.add_file_option(parser, "--issue", "also write a bug report with the repro, as Markdown")
    common.add_flag(parser, "--source", "reduce the program's source even if a graph fails")
    bisect_releases.add_release_range(parser)
    add_target(parser)


def run(args: argparse.Namespace) -> int:
    asks_for_releases = bisect_releases.asks_for_releases(args)
    program = parse_program(args)
    options = SearchOptions.of(args)
    for path in (args.issue, args.output):
        if path is not None:
            outputs.check_writable(path, force=args.force)
    name = f"repro-{Path(program.target).stem}"
    output = args.output or outputs.new_recording(None, name, force=False).with_suffix(".py")
    if args.resume is not None and args.recording is None:
        recording = linked_file(args.resume)
    else:
        recording = outputs.new_recording(args.recording, program.text, force=args.force)
    with ProgressPrinter(sys.stderr) as progress, common.interrupted_by_signals():
        releases = _prepare_releases(program, args, recording, progress) if asks_for_releases else None
        log = new_trial_log("minify", program, options, recording)
        try:
            result = reduce_to_repro(
                program,
                options,
                log,
                progress,
                output,
                source=args.source,
                follow_up=args.issue is not None,
                releases=releases,
            )
        except KeyboardInterrupt as interrupt:
            return _interrupted(interrupt, output, recording, progress, args)
    if args.issue is not None and result.text:
        text = issue_text(_case(result, program))
        outputs.write_file(args.issue, text.encode("utf-8", "backslashreplace"), force=args.force)
    elif args.issue is not None and result.failure is not None:
        common.print_error(f"{args.issue} is not written: there is no repro. `dynadiag triage` writes one without")
    document = encode(minify_document(result, program.text))
    common.write_result(args.json, document, lambda printer: result_text(result, printer))
    common.print_path(log.kept)
    return result.exit_code


def _case(result: MinifyResult, program: Program) -> TriagedCase:
    """What the issue of a result tells."""
    return TriagedCase(
        bisect=None,
        minify=minify_document(result, program.text),
        explain=None,
        parts=(),
        environment=environment_or_versions(),
        versions=result.versions,
        repro=result.text,
        repro_name=Path(result.repro or "repro.py").name,
        program=program_text(program),
        repro_output=result.printed,
        shown=FailureDocument.of(result.reduced),
        command=program.text,
    )


def program_text(program: Program) -> str:
    """The text of the program's file, for an issue; empty where it is none."""
    try:
        return "" if program.module else Path(program.target).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def reduce_to_repro(
    program: Program,
    options: SearchOptions,
    log: TrialLog,
    progress: ProgressPrinter,
    output: Path,
    *,
    source: bool = False,
    follow_up: bool = False,
    releases: Callable[[MinifyResult], MinifyResult] | None = None,
) -> MinifyResult:
    """Minify, write the repro, and complete the recording of the search.

    ``follow_up`` answers what an issue tells besides. ``releases`` adds to a proved and written repro since which
    release of torch it fails.
    Raises `DynadiagError` if the target is not a program, and `KeyboardInterrupt` after Ctrl-C (`Interrupted` if there
    is a result to keep). The recording then has the trials so far.
    """
    with trial_search(program, options, log, progress, HOOKS) as search:
        result = minify(search, MinifyRequest(options.of_bisection, output, source, follow_up))
    if releases is None or not result.proved:
        return _complete(result, program, log, output, force=options.force)
    result = save_repro(result, output, force=options.force)
    try:
        return _complete(releases(result), program, log, output, force=options.force)
    except KeyboardInterrupt:
        raise Interrupted(_complete(result, program, log, output, force=options.force)) from None


def _complete(result: MinifyResult, program: Program, log: TrialLog, output: Path, *, force: bool) -> MinifyResult:
    """Write the repro, and complete the recording with the result, also if the repro cannot be written."""
    try:
        result = save_repro(result, output, force=force)
    finally:
        named = replace(result, repro=str(Path(result.repro).absolute())) if result.repro else result
        texts = {named.repro: result.text} if named.repro else None
        log.add_verdict(encode(minify_document(named, program.text)).decode(), texts)
        log.finish(result.exit_code, force=True)
    return result


def _prepare_releases(
    program: Program, args: argparse.Namespace, recording: Path, progress: ProgressPrinter
) -> Callable[[MinifyResult], MinifyResult]:
    """Ask about the installs before the long work. Returns the function that searches over releases with the repro.

    Raises `DynadiagError` if the answer is no.
    """
    output = recording.with_stem(f"{recording.stem}-releases")
    outputs.check_writable(output, force=args.force)
    options = ReleaseOptions.of(args)
    bisect_releases.confirm_beforehand(program, options, progress.message)
    return partial(_search_releases, options=replace(options, yes=True), output=output, progress=progress)


def _search_releases(
    result: MinifyResult, options: ReleaseOptions, output: Path, progress: ProgressPrinter
) -> MinifyResult:
    """The result with the search over releases of torch. If that fails, a note says why: the repro is proved."""
    progress.message("searching the releases of torch with the repro")
    try:
        report = bisect_releases.search_with_repro(Path(str(result.repro)), options, output, progress)
    except DynadiagError as error:
        return replace(result, notes=(*result.notes, f"the releases of torch were not searched: {error}"))
    return result.with_versions(report.document())


def save_repro(result: MinifyResult, output: Path, *, force: bool) -> MinifyResult:
    """Write the repro, if there is one. Returns the result with the path.

    The search was long: where another program has made that file since, the repro is written beside it, and a note
    says so.
    """
    if not result.text:
        return result
    place = Path(result.repro) if result.repro else output  # this search has written it before
    if not (force or result.repro) and place.exists():
        place = outputs.unused_beside(output)
        result = replace(result, notes=(*result.notes, f"{output} was made by another program since: {place} is it"))
    outputs.write_file(place, result.text.encode(), force=force or result.repro is not None)
    return replace(result, repro=str(place))


def _interrupted(
    interrupt: KeyboardInterrupt, output: Path, recording: Path, progress: ProgressPrinter, args: argparse.Namespace
) -> int:
    if isinstance(interrupt, Interrupted):
        result = save_repro(interrupt.result, output, force=args.force)
        common.write_json(args.json, encode(minify_document(result, str(args.target))))
        if result.text:
            proved = "proved" if result.proved else "not proved"
            progress.message(f"interrupted: the best so far ({sizes(result)}) is in {result.repro}; it is {proved}")
        elif result.failure is not None:
            where = f", first at rung {result.rung}" if result.rung else ""
            shown = first_line(clean_line(f"{result.failure.type}: {result.failure.message}"))
            progress.message(f"interrupted before there was a smaller program; it fails{where}: {shown}")
    progress.message(f"resume with --resume {recording}")
    return common.INTERRUPTED
