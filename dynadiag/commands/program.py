"""Running a program for a command: how it is named on the command line, and recorded."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from dynadiag.capture.launch import Ended, launch
from dynadiag.capture.settings import Settings
from dynadiag.trial.program import Program

__all__ = ["add_program", "program_of", "run_recorded"]


class _Module(argparse.Action):
    """``-m pkg.mod ARGS...``: what follows is the module and its arguments."""

    def __call__(
        self, _parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object, _option: object = None
    ) -> None:
        words = list(values) if isinstance(values, list) else [str(values)]
        namespace.module, namespace.target, namespace.arguments = True, words[0] if words else "", words[1:]


def add_program(parser: argparse.ArgumentParser) -> None:
    """TARGET and the arguments that are the program's."""
    parser.set_defaults(module=False)
    parser.add_argument(
        "-m", dest="module_words", action=_Module, nargs=argparse.REMAINDER, help="run a module as `python -m` would"
    )
    parser.add_argument("target", nargs="?", metavar="TARGET", help="a program, a recording or a log")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS", help="the program's own arguments")


def program_of(args: argparse.Namespace) -> Program:
    """The program that the arguments name. Raises `TargetError` where there is none."""
    return Program.parse(args.target, tuple(args.arguments), args.module)


def run_recorded(program: Program, recording: Path, args: argparse.Namespace) -> Ended:
    """Run a program with its journal at ``recording``."""
    settings = Settings(
        target=program.text,
        source=not args.no_source,
        stop_after=args.stop_after,
        limit=int(args.limit * 1e9),
    )
    return launch(_command(program), recording, settings)


def _command(program: Program) -> list[str]:
    """The command line that runs a program: Python's own, but for a function that has to be compiled and called."""
    if program.name is not None:
        call = "import sys; from dynadiag.trial.program import main; sys.exit(main(sys.argv.pop()))"
        return [sys.executable, "-P", "-c", call, json.dumps(program.to_json())]
    if program.module:
        return [sys.executable, "-m", program.target, *program.arguments]
    return [sys.executable, program.target, *program.arguments]
