"""The target of a command: how the command line names a program, and how a command records it."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from dynadiag.capture.launch import ProcessEnd, launch
from dynadiag.capture.settings import Settings
from dynadiag.commands import common
from dynadiag.trial.program import Program, TargetError
from dynadiag.trial.sandbox import cache_variables
from dynadiag.trial.typed_json import dump

__all__ = ["add_recorder_options", "add_target", "exit_code", "parse_program", "run_recorded"]

_INTERRUPTED = 130
_SIGNAL = 128  # what a shell adds to the number of the signal that ended a program

_CALL_TARGET_CODE = "import sys; from dynadiag.commands.call_target import main; sys.exit(main(*sys.argv[1:]))"


class _TargetAction(argparse.Action):
    """Splits ``TARGET ARGS...``, also after ``-m``. All words after the target belong to the program."""

    def __call__(
        self, _parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object, option: object = None
    ) -> None:
        words = list(values) if isinstance(values, list) else [str(values)]
        if option is None and words[:1] == ["--"]:
            del words[0]  # it ends dynadiag's own options
        if words:
            namespace.module, namespace.target, namespace.arguments = option is not None, words[0], words[1:]


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add TARGET and the program's arguments."""
    parser.set_defaults(module=False, target=None, arguments=[])
    parser.usage = "%(prog)s [OPTIONS] TARGET [ARGS...]"
    parser.add_argument(
        "-m",
        dest="words",
        action=_TargetAction,
        nargs=argparse.REMAINDER,
        metavar="MOD ...",
        help="run a module as `python -m` would",
    )
    # One positional for all words: between two, argparse would remove a `--` of the program.
    parser.add_argument(
        "words",
        action=_TargetAction,
        nargs=argparse.REMAINDER,
        metavar="TARGET",
        help="the program and its own arguments",
    )


def add_recorder_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command that records a program."""
    parser.add_argument("--no-source", action="store_true", help="leave your source text out of the recording")
    parser.add_argument(
        "--stop-after",
        type=common.positive_int("calls"),
        metavar="N",
        help="stop the program after N calls of compiled functions",
    )
    parser.add_argument(
        "--limit",
        type=common.positive_number("a size in gigabytes"),
        metavar="GB",
        default=2.0,
        help="size cap of the log (default 2)",
    )
    parser.add_argument("--fresh", action="store_true", help="use empty compiler caches, in a temporary folder")


def parse_program(args: argparse.Namespace) -> Program:
    """Return the program that the arguments name. Raises `TargetError` if they name none."""
    if not args.target:
        raise TargetError("name a program: FILE.py, -m pkg.mod, FILE.py:NAME or pkg.mod:NAME")
    file, colon, _ = args.target.rpartition(":")
    try:
        if colon and file.endswith(".py") and not args.module and not Path(file).is_file():
            raise TargetError(f"{file}: no such file")
        return Program.parse(args.target, tuple(args.arguments), args.module)
    except (OSError, ValueError) as error:  # not a valid file name
        raise TargetError(f"{args.target[:200]}: no such program ({error.__class__.__name__})") from error


def run_recorded(program: Program, recording: Path, args: argparse.Namespace) -> ProcessEnd:
    """Run a program and record it into ``recording``.

    Raises `TargetError`, and leaves no recording, if a function must be imported and cannot be.
    """
    settings = Settings(
        target=program.text,
        source=not args.no_source,
        stop_after=args.stop_after,
        limit=int(args.limit * 1e9),
    )
    with tempfile.TemporaryDirectory(prefix="dynadiag-") as folder:
        refusal = Path(folder, "refusal")
        caches = cache_variables(Path(folder)) if args.fresh else {}
        ended = launch(_python_command(program, args.target, refusal), recording, settings, caches)
        if refusal.exists():
            recording.unlink(missing_ok=True)
            raise TargetError(refusal.read_text())
    return ended


def exit_code(ended: ProcessEnd) -> int:
    """Return the exit code of a command that only runs a program: the program's own, as a shell gives it."""
    if ended.interrupted:
        return _INTERRUPTED
    return _SIGNAL - ended.exit_code if ended.exit_code < 0 else ended.exit_code


def _python_command(program: Program, typed: str, refusal: Path) -> list[str]:
    """Return the command line that runs a program: Python's own, unless a function must be compiled and called."""
    if program.name is not None:
        return [sys.executable, "-P", "-c", _CALL_TARGET_CODE, dump(program), str(refusal)]
    if program.module:
        return [sys.executable, "-m", program.target, *program.arguments]
    return [sys.executable, typed, *program.arguments]
