"""Explain, bisect and minify a failing program in one go, and write an issue that is ready to post.

With --torch A..B the repro is also tried with these releases of torch, which are installed if --yes agrees to it.

FOLDER gets issue.md (in the form of PyTorch's template), triage.json, report.html, repro.py, what the program printed,
and the recordings. Each part can fail: the others are still there, and the issue and the JSON say which one is missing
and why. After Ctrl-C or SIGTERM, or when --budget is used up, what was found so far is written.

--redact leaves out everything that the program's author wrote: source, names, messages, values, paths. The recordings
and the repro are then kept beside your other recordings, not in FOLDER.

TARGET is FILE.py, -m pkg.mod, FILE.py:NAME or pkg.mod:NAME. Options come before it; words after it belong to the
program. TARGET may also be the text of somebody's issue, FILE.md: its program runs in a sandbox (bubblewrap) without
network, home or GPU, and can write to a folder of its own only; with --no-sandbox it runs with all your rights.

Exit code: that of the verdict, as bisect (0 found, 3 it does not fail, 4 it fails uncompiled too, 5 no culprit is
sure); 3 also where an issue holds no program; 2 usage error; 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from dynadiag.commands import bisect_releases, common, outputs
from dynadiag.commands.progress import ProgressPrinter
from dynadiag.commands.search_options import add_search_options
from dynadiag.commands.target_options import add_target, parse_program
from dynadiag.commands.triage_issue import NO_PROGRAM, is_issue, issue_program, triage_issue
from dynadiag.commands.triage_run import TriageRun, check_replaceable, files_in
from dynadiag.errors import DynadiagError
from dynadiag.minify.minify_result import sizes
from dynadiag.render.clean import clean_line
from dynadiag.render.json_document import encode
from dynadiag.triage.document import TriageDocument
from dynadiag.trial.program import Program


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    outputs.add_json(parser)
    outputs.add_folder_option(parser, "the folder to make")
    parser.add_argument(
        "--force", action="store_true", help="write into an existing folder, over the files of a triage"
    )
    parser.add_argument("--no-sandbox", action="store_true", help="run an issue's program with all your rights")
    parser.add_argument("--redact", action="store_true", help="leave out source, names, messages, values and paths")
    add_search_options(parser)
    parser.set_defaults(resume=None)
    bisect_releases.add_release_range(parser)
    add_target(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    bisect_releases.asks_for_releases(args)
    outputs.check_json_path(args.json)
    if is_issue(args):
        source = issue_program(args)
        if source is None:
            return NO_PROGRAM
        with _made_folder(args, args.target) as folder:
            return triage_issue(args, source, folder)
    program = parse_program(args)
    with (
        common.interrupted_by_signals(),
        _made_folder(args, program.target) as folder,
        ProgressPrinter(sys.stderr) as progress,
    ):
        kept = _private_folder(program) if args.redact else folder
        try:
            triage = TriageRun(program, args, folder, kept, progress)
            document = triage.run()
        except DynadiagError:
            if kept != folder:
                shutil.rmtree(kept, ignore_errors=True)
            raise
    _report(triage, document, args)
    if kept != folder:
        progress.message(f"not in the folder, as they show the program: {kept}")
    common.print_path(folder)
    return triage.exit_code


@contextlib.contextmanager
def _made_folder(args: argparse.Namespace, target: str) -> Iterator[Path]:
    """The folder of the triage. If the body raises `DynadiagError`, it is as it was before."""
    folder, is_new = _folder(args, target)
    try:
        check_replaceable(folder)
        with outputs.set_aside(folder, lambda: files_in(folder)):
            yield folder
    except DynadiagError:
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _folder(args: argparse.Namespace, target: str) -> tuple[Path, bool]:
    """Make the folder. Returns it, and whether it was not there before."""
    folder: Path = args.output or outputs.new_recording(None, f"triage-{Path(target).stem}", force=False)
    folder = folder.absolute() if args.output else folder.with_suffix("")
    exists = folder.exists()
    if exists and not folder.is_dir():
        raise DynadiagError(f"{args.output} is not a folder: name one")
    if exists and not args.force:
        raise DynadiagError(f"{args.output} exists: give another name, or --force to write into it")
    if not folder.parent.is_dir():
        raise DynadiagError(f"{args.output}: there is no folder {folder.parent}")
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise DynadiagError(f"cannot write {folder}: {error.strerror}") from error
    return folder, not exists


def _private_folder(program: Program) -> Path:
    kept = outputs.new_recording(None, f"triage-{Path(program.target).stem}-kept", force=False).with_suffix("")
    kept.mkdir()
    return kept


def _report(triage: TriageRun, document: TriageDocument, args: argparse.Namespace) -> None:
    common.write_json(args.json, encode(document))
    if args.json == "-":
        return
    printer = common.printer_for(sys.stdout)
    lines = ["no verdict" if triage.verdict is None else triage.verdict.text(printer).splitlines()[0]]
    if triage.minified is not None and triage.minified.text:
        lines.append(f"repro: {sizes(triage.minified)}, {'proved' if triage.minified.proved else 'not proved'}")
    lines += [f"{each.name}: {each.status}: {clean_line(each.reason or '')}" for each in triage.parts if each.reason]
    lines += ["", *(f"  {path.name}" for path in files_in(triage.folder))]
    common.print_text("\n".join(lines) + "\n")
