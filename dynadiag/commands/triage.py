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
import json
import os
import shutil
import site
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from dynadiag.commands import bisect_releases, common, outputs
from dynadiag.commands.progress import Alarm, ProgressPrinter
from dynadiag.commands.search_options import SearchOptions, add_search_options
from dynadiag.commands.target_options import add_target, parse_program
from dynadiag.commands.triage_run import FILES, TriageRun, check_replaceable, files_in
from dynadiag.errors import DynadiagError
from dynadiag.minify.minify_result import sizes
from dynadiag.render.clean import clean, clean_line
from dynadiag.render.json_document import encode
from dynadiag.triage.document import TriageDocument
from dynadiag.triage.isolation import INSIDE, isolated, why_not_isolated
from dynadiag.triage.issue_program import program_of_issue


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    outputs.add_json(parser)
    outputs.add_folder_option(parser, "the folder to make")
    common.add_flag(parser, "--force", "write into an existing folder, over the files of a triage")
    common.add_flag(parser, "--no-sandbox", "run an issue's program with all your rights")
    common.add_flag(parser, "--redact", "leave out source, names, messages, values and paths")
    add_search_options(parser)
    parser.set_defaults(resume=None)
    bisect_releases.add_release_range(parser)
    add_target(parser)


def arrange_arguments(arguments: list[str]) -> list[str]:
    """The arguments with an issue at the end: its program has none, so what follows is ours."""
    for place, word in enumerate(arguments):
        if word == "-m" or ":" in word or word.endswith(".py"):
            break  # a program, and its arguments
        if _is_issue(word) and not (place and arguments[place - 1] in _WITH_PATHS):
            return [*arguments[:place], *arguments[place + 1 :], word]
    return arguments


def _is_issue(target: str | None) -> bool:
    return Path(target or "").suffix.lower() == ".md"


def run(args: argparse.Namespace) -> int:
    bisect_releases.asks_for_releases(args)
    if not args.module and _is_issue(args.target):
        source = issue_program(args)
        if source is None:
            return NO_PROGRAM
        with _made_folder(args, args.target) as folder:
            prefix = "dynadiag-issue-"
            with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
                scratch = Path(name)
                for each in ("home", "tmp", "caches"):
                    (scratch / each).mkdir()
                (scratch / "program.py").write_text(source, encoding="utf-8")
                code, said = _run(args, scratch)
                taken = _take_out(scratch, folder)
            if not taken:
                raise DynadiagError(f"the triage of the issue's program wrote nothing: exit code {code}")
            if args.json != "-":
                common.print_text(clean(said))
            if args.json is not None and "triage.json" in taken:
                common.write_json(args.json, json.dumps(_document(folder / "triage.json")).encode())
            common.print_path(folder)
            return code
    program = parse_program(args)
    with (
        common.interrupted_by_signals(),
        _made_folder(args, program.target) as folder,
        ProgressPrinter(sys.stderr) as progress,
    ):
        kept = folder
        if args.redact:
            name = f"triage-{Path(program.target).stem}-kept"
            kept = outputs.new_recording(None, name, force=False).with_suffix("")
            kept.mkdir()
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


@contextmanager
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


NO_PROGRAM = 3  # the exit code
_WITH_PATHS = ("-o", "--output", "--json", "--python")  # options, each with a path
_MAX_TEXT = 4 << 20  # bytes of an issue
_MAX_FILE = 1 << 30  # bytes of a file that is taken out of the sandbox
_MAX_REPORT = 1 << 20  # bytes of what the triage reports
_SECONDS = 3600.0  # of the whole triage, where --budget says nothing
_GRACE = 60.0  # seconds after the budget, in which the triage writes what it has
_OUTPUT = "triage"  # the folder of the triage in the sandbox


def issue_program(args: argparse.Namespace) -> str | None:
    """The program of the issue, which may be run here; ``None`` if there is none. Raises `DynadiagError` if it may
    not.
    """
    program = program_of_issue(_text(Path(args.target)))
    if program is None:
        sys.stderr.write(f"{clean_line(args.target)}: it holds no program that imports torch and compiles\n")
        return None
    if args.arguments or args.torch:
        raise DynadiagError("an issue's program has no arguments, and no network to install releases of torch from")
    reason = None if args.no_sandbox else why_not_isolated()
    if reason is not None:
        raise DynadiagError(
            f"there is no sandbox for the issue's program: {reason}. --no-sandbox runs it with all your rights"
        )
    return program


def _document(file: Path) -> object:
    """The document of the triage. The program may have written anything in its place."""
    try:
        return json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DynadiagError(f"{file}: the issue's program has replaced it by what is no JSON") from error


def _text(issue: Path) -> str:
    try:
        with issue.open("rb") as stream:
            data = stream.read(_MAX_TEXT + 1)
    except OSError as error:
        raise DynadiagError(f"cannot read {issue}: {error.strerror}") from error
    if len(data) > _MAX_TEXT:
        raise DynadiagError(f"{issue}: larger than {_MAX_TEXT >> 20} MiB, which no issue is")
    return data.decode(errors="replace")


def _run(args: argparse.Namespace, scratch: Path) -> tuple[int, str]:
    """Run the triage of the program, in the sandbox or as the user. Returns its exit code, and what it reports."""
    root = scratch if args.no_sandbox else INSIDE
    seconds = args.budget or _SECONDS
    words = replace(SearchOptions.of(args), budget=seconds).words("triage")["options"]
    words += ["--redact"] * args.redact + ["-o", str(root / _OUTPUT), str(root / "program.py")]
    command = [sys.executable, "-m", "dynadiag", "triage", *words]
    environment = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"]),
        "HOME": str(root / "home"),
        "XDG_STATE_HOME": str(root / "home"),
        "PYTHONUSERBASE": site.getuserbase(),  # its packages may be those of the user, below the home
        "TMPDIR": str(root / "tmp"),
        "TORCHINDUCTOR_CACHE_DIR": str(root / "caches"),
        "USER": "sandbox",  # asked for where no file of users is
        "LANG": "C.UTF-8",
    }
    if args.no_sandbox:
        environment = {**os.environ, **environment}
    else:
        command = isolated(command, scratch, environment)
    nothing, piped = subprocess.DEVNULL, subprocess.PIPE
    with tempfile.TemporaryFile() as report:
        process = subprocess.Popen(command, cwd=scratch, env=environment, stdin=nothing, stdout=report, stderr=piped)
        with process, ProgressPrinter(sys.stderr) as progress:
            code = _watch(process, progress, seconds + _GRACE, str(root / _OUTPUT))
        report.seek(0)
        return code, report.read(_MAX_REPORT).decode(errors="replace")


def _watch(process: subprocess.Popen[bytes], progress: ProgressPrinter, seconds: float, folder: str) -> int:
    """Show the progress of the triage, until it ends or its time is over, but not the path of its folder, which goes
    with it. What it says may be the program's.
    """
    try:
        with Alarm(seconds):
            assert process.stderr is not None
            for line in process.stderr:
                if (text := line.decode(errors="replace").rstrip()) != folder:
                    progress.message(clean_line(text))
            return process.wait()
    except KeyboardInterrupt:  # the time is over, or Ctrl-C
        return common.INTERRUPTED
    finally:
        process.kill()
        process.wait()


def _take_out(scratch: Path, folder: Path) -> list[str]:
    """Copy the files of the triage that are plain files: the program may have put a link in the place of one."""
    taken: list[str] = []
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        inside = os.open(scratch / _OUTPUT, flags | os.O_DIRECTORY)
    except OSError:
        return taken
    try:
        for name in FILES:
            with suppress(OSError):
                source = os.open(name, flags | os.O_NONBLOCK, dir_fd=inside)
                with os.fdopen(source, "rb") as stream:
                    found = os.fstat(source)
                    if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_size <= _MAX_FILE:
                        outputs.write_file(folder / name, stream.read(), force=True)
                        taken.append(name)
    finally:
        os.close(inside)
    return taken
