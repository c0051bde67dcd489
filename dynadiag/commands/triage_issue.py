"""`triage ISSUE.md`: takes the program from the text of an issue, and triages it in a sandbox."""

from __future__ import annotations

import argparse
import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from dynadiag.commands import common, outputs
from dynadiag.commands.alarm import Alarm
from dynadiag.commands.progress import ProgressPrinter
from dynadiag.commands.search_options import SearchOptions
from dynadiag.commands.triage_run import FILES
from dynadiag.errors import DynadiagError
from dynadiag.render.clean import clean_line
from dynadiag.triage.isolation import INSIDE, isolated, why_not_isolated
from dynadiag.triage.issue_program import program_of_issue

NO_PROGRAM = 3  # the exit code
_MAX_TEXT = 4 << 20  # bytes of an issue
_MAX_FILE = 1 << 30  # bytes of a file that is taken out of the sandbox
_SECONDS = 3600.0  # of the whole triage, where --budget says nothing
_GRACE = 60.0  # seconds after the budget, in which the triage writes what it has
_OUTPUT = "triage"  # the folder of the triage in the sandbox


def is_issue(args: argparse.Namespace) -> bool:
    """Whether the target is the text of an issue, not a program."""
    return not args.module and Path(args.target or "").suffix.lower() == ".md"


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


def triage_issue(args: argparse.Namespace, program: str, folder: Path) -> int:
    """Triage the program of an issue into ``folder``. Returns the triage's exit code."""
    with _scratch() as scratch:
        (scratch / "program.py").write_text(program, encoding="utf-8")
        code = _run(args, scratch)
        taken = _take_out(scratch, folder)
    if not taken:
        raise DynadiagError(f"the triage in the sandbox wrote nothing: exit code {code}")
    if args.json is not None and "triage.json" in taken:
        common.write_json(args.json, json.dumps(_document(folder / "triage.json")).encode())
    common.print_path(folder)
    return code


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


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="dynadiag-issue-", ignore_cleanup_errors=True) as name:
        scratch = Path(name)
        for each in ("home", "tmp", "caches"):
            (scratch / each).mkdir()
        yield scratch


def _run(args: argparse.Namespace, scratch: Path) -> int:
    """Run the triage of the program, in the sandbox or as the user. Returns its exit code."""
    root = scratch if args.no_sandbox else INSIDE
    seconds = args.budget or _SECONDS
    words = replace(SearchOptions.of(args), budget=seconds).words("triage")["options"]
    words += ["--redact"] * args.redact + ["-o", str(root / _OUTPUT), str(root / "program.py")]
    command = [sys.executable, "-m", "dynadiag", "triage", *words]
    environment = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"]),
        "HOME": str(root / "home"),
        "XDG_STATE_HOME": str(root / "home"),
        "TMPDIR": str(root / "tmp"),
        "TORCHINDUCTOR_CACHE_DIR": str(root / "caches"),
        "USER": "sandbox",  # asked for where no file of users is
        "LANG": "C.UTF-8",
    }
    if args.no_sandbox:
        environment = {**os.environ, **environment}
    else:
        command = isolated(command, scratch, environment)
    silent, together = subprocess.DEVNULL, subprocess.STDOUT
    process = subprocess.Popen(
        command, cwd=scratch, env=environment, stdin=silent, stdout=subprocess.PIPE, stderr=together
    )
    with ProgressPrinter(sys.stderr) as progress:
        return _watch(process, progress, seconds + _GRACE)


def _watch(process: subprocess.Popen[bytes], progress: ProgressPrinter, seconds: float) -> int:
    """Show what the triage says, until it ends or its time is over. What it says may be the program's."""
    try:
        with Alarm(seconds):
            assert process.stdout is not None
            for line in process.stdout:
                progress.message(clean_line(line.decode(errors="replace").rstrip()))
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
