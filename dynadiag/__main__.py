"""The command line: ``dynadiag COMMAND [OPTIONS] TARGET [ARGS...]``.

Each command is a module of `dynadiag.commands`, and its docstring is its help. A command is imported when it is run, so
``dynadiag --help`` is quick and never loads torch.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # `python -m dynadiag` puts the current folder first, and the user's recording.py may be there

import argparse
import os
from contextlib import nullcontext, suppress
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, NoReturn

from dynadiag import __version__
from dynadiag.errors import DynadiagError, discard_stdout

COMMANDS = {
    "explain": "show what torch.compile did: every graph, guard, break and recompile, in your own lines",
    "record": "run a program and keep its recording, without a report",
    "values": "show the value of each node of a compiled graph: the first NaN, the first that is wrong",
    "bisect": "find the part of the compiler that is at fault",
    "minify": "write a small program with the same failure, and prove it",
    "triage": "explain, bisect and minify in one go, and write an issue that is ready to post",
    "caches": "say why a start compiles again: what each cache was asked, and which part of a key changed",
    "check": "hold programs, recordings or logs to a baseline and to budgets",
    "fix": "find changes that remove graph breaks and recompiles, and prove each one",
    "run": "run a program with overlays: changed functions of installed packages",
    "diff": "find where two runs differ first: breaks, guards, graphs, kernels, caches",
    "compare": "time eager against compile modes: does compiling pay?",
    "kernels": "list generated kernels, or print one",
    "graph": "draw the graphs, as DOT or SVG",
    "browse": "browse a recording in the terminal: source, graphs, kernels",
    "import": "convert a TORCH_TRACE log to a recording",
    "export": "convert a recording to a TORCH_TRACE log",
    "pack": "store the recordings of a distributed job in one file",
    "report": "write recordings as one HTML page, to be sent",
    "schema": "print the JSON Schema of a command's document",
    "prune": "say what of the stored recordings may go, and remove it",
    "mcp": "serve the commands and recordings to an agent, over the Model Context Protocol",
    "doctor": "check for torch, Triton, a compiler, a GPU",
}
_MODULES = {"import": "import_"}
USAGE_ERROR = 2
INTERRUPTED = 130


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code. `DynadiagError` is caught only here."""
    arguments = sys.argv[1:] if argv is None else argv
    if _OwnPackageFinder not in sys.meta_path:
        sys.meta_path.insert(0, _OwnPackageFinder)
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a TextIOWrapper at start-up
    try:
        code = _run(arguments)
        sys.stdout.flush()  # here, because a full disk can still be reported
    except DynadiagError as error:
        code = _print_error(str(error))
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:  # `dynadiag ... | head` has closed the pipe
        discard_stdout()
        code = 0
    except OSError as error:  # a full disk, a file that was deleted
        discard_stdout()
        code = _print_error(f"{error.filename or 'output'}: {error.strerror or error}")
    return code


def _print_error(reason: str) -> int:
    text = f"dynadiag: {_one_line(reason)}"
    if os.environ.get("GITHUB_ACTIONS") == "true":
        text = text.replace("##[", "##\\[")  # a runner would take it for a command
    with suppress(OSError):  # stderr is on a full disk: the exit code says it
        print(text, file=sys.stderr, flush=True)  # noqa: T201 - the command line reports here
    return USAGE_ERROR


def _open_closed_streams() -> None:
    """Open the null device where stdin, stdout or stderr is closed (``>&-``), so that no file of ours gets its number.

    A program that we start gets it closed, as it would without us.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - it stays open; pathlib is slow to load


class _OwnPackageFinder:
    """Finds our packages with ordinary names first, as the user's path may have others of the same name."""

    _FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - pathlib is slow to load

    @classmethod
    def find_spec(cls, name: str, path: object = None, _target: object = None) -> ModuleSpec | None:
        if path is None and name in ("minifier", "tui"):
            return PathFinder.find_spec(name, [cls._FOLDER])
        return None


def _run(arguments: list[str]) -> int:
    name = next((argument for argument in arguments[:1] if not argument.startswith("-")), None)
    if name not in COMMANDS:
        _main_parser().parse_args(arguments)  # prints help, the version or a usage error, then exits
        return USAGE_ERROR
    module, parser = _command_module(name), command_parser(name)
    arranged = getattr(module, "arrange_arguments", list)  # where TARGET alone does not tell options from arguments
    args = parser.parse_args(arranged(arguments[1:]))
    outputs = sys.modules.get("dynadiag.commands.outputs")  # a command that writes nothing has not loaded it
    with outputs.guard(parser, args) if outputs else nullcontext():
        return int(module.run(args))


def _command_module(command: str) -> ModuleType:
    return import_module(f"dynadiag.commands.{_MODULES.get(command, command)}")


def command_parser(command: str) -> argparse.ArgumentParser:
    """Return the parser of a command's arguments, whose description is the command's help."""
    module = _command_module(command)
    parser = _Parser(
        prog=f"dynadiag {command}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.prepare_parser(parser)
    return parser


class _Parser(argparse.ArgumentParser):
    """Reports a usage error like any other error: one line, exit code 2."""

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        if action.option_strings and action.nargs is None and arg_strings == ["--"]:  # argparse takes it out (3.11)
            self.error(f"argument {action.option_strings[0]}: expected one argument, not --")
        return super()._get_values(action, arg_strings)

    def error(self, message: str) -> NoReturn:
        raise DynadiagError(f"{message} (see `{self.prog} --help`)")


def _main_parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:<9} {purpose}" for name, purpose in COMMANDS.items())
    parser = _Parser(
        prog="dynadiag",
        usage="dynadiag COMMAND [OPTIONS] TARGET [ARGS...]",
        description="See what torch.compile did with your program, find the part at fault, and minify the program.",
        epilog=f"commands:\n{listed}\n\n`dynadiag COMMAND --help` says more. Start with: dynadiag explain FILE.py",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"dynadiag {__version__}")
    parser.add_argument("command", metavar="COMMAND", choices=list(COMMANDS), help=argparse.SUPPRESS)
    return parser


def _one_line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


if __name__ == "__main__":
    sys.exit(main())
