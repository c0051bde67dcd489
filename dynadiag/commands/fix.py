"""Find changes that remove graph breaks and recompiles, and prove each one.

The program is run and explained. For each root cause changes are tried in copies of your files, the smallest first. A
change is proved if the break or recompile is gone, no new one appears, and the program's output, its results, gradients
and changes of state are the same, with its own inputs and with others. Your files are not changed without --apply; -o
writes a patch for `patch -p1` or `git apply`.

Functions of installed packages are changed by an overlay: --overlay FILE.py writes a module that puts the changed
functions in place when the package is imported (`dynadiag run --overlay FILE.py TARGET`, or DYNADIAG_OVERLAY=FILE.py in
the environment, or an import at the top of the program). --overlay FILE.diff writes them as a patch for that package.
No installed file is changed.

TARGET is FILE.py, -m pkg.mod, FILE.py:NAME or pkg.mod:NAME. Options come before it; words after it belong to the
program. Exit code: 0 every cause has a proved fix (a recompile that no proved change removes does not count), 1 some
have none, 3 there is nothing to fix, 4 the program fails uncompiled, 2 usage error.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from functools import partial

from dynadiag.bisection.trial_log import TrialLog
from dynadiag.commands import common, outputs
from dynadiag.commands.progress import ProgressPrinter
from dynadiag.commands.target_options import add_target, parse_program
from dynadiag.errors import DynadiagError
from dynadiag.explanation.formatting import count
from dynadiag.fixes.edits import unified_diff
from dynadiag.fixes.fix_report import FixDocument, encode_document, report_text
from dynadiag.fixes.fix_result import FixResult, document_of, exit_code_of
from dynadiag.fixes.fix_search import find_fixes
from dynadiag.fixes.project import Project
from dynadiag.fixes.prover import NothingToProve
from dynadiag.fixes.trials import TIMEOUT, Trials, runner_of
from dynadiag.trial.outcome import Outcome


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    outputs.add_json(parser)
    outputs.add_output(parser, "the patch to write")
    outputs.add_file_option(parser, "--recording", "the recording of the search")
    told = "where changes of installed packages go: FILE.py is a module that makes them, FILE.diff a patch"
    outputs.add_file_option(parser, "--overlay", told)
    common.add_flag(parser, "--apply", "change your files")
    told = "time limit of one trial in seconds"
    common.add_amount(parser, "--timeout", "a number of seconds", "S", told, TIMEOUT)
    add_target(parser)


def run(args: argparse.Namespace) -> int:
    program = parse_program(args)
    if args.output is not None:
        outputs.check_writable(args.output, force=args.force)
    if args.overlay is not None:
        if args.overlay.suffix not in (".py", ".diff", ".patch"):
            raise DynadiagError(f"--overlay {args.overlay}: name a FILE.py, or a FILE.diff")
        outputs.check_writable(args.overlay, force=args.force)
    project = Project.of(program)
    recording = outputs.new_recording(args.recording, program.text, force=args.force)
    log = TrialLog(recording, program.text, [program.target, *program.arguments], force=args.force)
    began = time.monotonic()
    with (
        ProgressPrinter(sys.stderr) as progress,
        common.interrupted_by_signals(),
        runner_of(program, args.timeout) as runner,
    ):
        trials = Trials(project, runner, partial(_on_outcome, log, progress))
        try:
            result, refused = _find(trials, log, progress)
        except KeyboardInterrupt:
            return common.INTERRUPTED
    document = document_of(result, project, trials.count, time.monotonic() - began)
    code = exit_code_of(result) if refused is None else refused.exit_code
    note = None if refused is None else str(refused)
    log.finish(code, force=True)
    document = _write(result, project, document, args)
    common.write_json(args.json, encode_document(document))
    if args.json != "-":
        common.print_text(report_text(document, common.printer_for(sys.stdout), note))
    common.print_path(log.kept)
    return code


def _on_outcome(log: TrialLog, progress: ProgressPrinter, label: str, outcome: Outcome) -> None:
    log.add(label, outcome, outcome.ending, label)
    progress.on_trial(log.count, label, outcome.ending, outcome.seconds)


def _find(trials: Trials, log: TrialLog, progress: ProgressPrinter) -> tuple[FixResult, NothingToProve | None]:
    """Search for fixes. Returns the result, and why none can be proved if so."""
    try:
        with log.kept_after_interrupt():
            return find_fixes(trials, progress.message), None
    except NothingToProve as refused:
        return FixResult((), (), {}, None), refused
    except KeyboardInterrupt:
        progress.message(f"interrupted after {count(log.count, 'trial')}")
        raise


def _write(result: FixResult, project: Project, document: FixDocument, args: argparse.Namespace) -> FixDocument:
    """Write the patch and the overlay, and with ``--apply`` the user's files."""
    import msgspec

    if not result.edits:
        return document
    sources = {name: project.source(name) for name in result.changed}
    if args.output is not None and result.changed:
        outputs.write_file(args.output, unified_diff(sources, result.changed).encode(), force=args.force)
        document = msgspec.structs.replace(document, patch=str(args.output.absolute()))
    overlay = result.overlay(project) if args.overlay is not None else ""
    if overlay:
        text = overlay if args.overlay.suffix == ".py" else result.package_diff(project)
        outputs.write_file(args.overlay, text.encode(), force=args.force)
        document = msgspec.structs.replace(document, overlay=str(args.overlay.absolute()))
    if args.apply:
        apply_edits(project, sources, result.changed)
    return document


def apply_edits(project: Project, sources: Mapping[str, str], changed: Mapping[str, str]) -> None:
    """Change the files of the program: all, or none if one of them is not what the search read."""
    for name in changed:
        try:
            same = (project.root / name).read_bytes() == sources[name].encode()
        except OSError:
            same = False
        if not same:
            raise DynadiagError(f"{project.root / name} was changed meanwhile: run fix again")
    for name, text in changed.items():
        outputs.change_input(project.root / name, text.encode())
