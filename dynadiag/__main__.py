"""The command line: ``dynadiag COMMAND [OPTIONS] TARGET [ARGS...]``.

Each command is a module of `dynadiag.commands` whose docstring is its help; it is imported when it is asked for, so
that ``dynadiag --help`` is quick and never loads torch.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # `python -m dynadiag` puts the current folder first, and the user's recording.py may be there

import argparse
import os
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from typing import NoReturn

from dynadiag import __version__
from dynadiag.errors import DynadiagError

COMMANDS = {
    "explain": "what torch.compile did: every graph, guard, break and recompile, in your own lines",
    "bisect": "which part of the compiler is at fault",
    "minify": "a small program with the same failure, proved",
    "compare": "does compiling pay: eager against compile modes",
    "kernels": "list generated kernels, or print one",
    "graph": "draw the graphs, as DOT or SVG",
    "browse": "browse a recording in the terminal",
    "import": "make a recording of a TORCH_TRACE log",
    "export": "make a TORCH_TRACE log of a recording",
    "doctor": "what of torch, Triton, a compiler, a GPU is here",
}
_MODULES = {"import": "import_"}
USAGE_ERROR = 2
INTERRUPTED = 130


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code. `DynadiagError` is caught here, and nowhere else."""
    arguments = sys.argv[1:] if argv is None else argv
    if _OurPackages not in sys.meta_path:
        sys.meta_path.insert(0, _OurPackages)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a TextIOWrapper at start-up
    try:
        code = _run(arguments)
        sys.stdout.flush()  # here, where it can still be said that a disk is full
    except DynadiagError as error:
        code = _refuse(str(error))
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:  # `dynadiag ... | head`: the reader has what it wanted
        _give_up_stdout()
        code = 0
    except OSError as error:  # a full disk, a file that went away: nothing that a command could mend
        _give_up_stdout()
        code = _refuse(f"{error.filename or 'output'}: {error.strerror or error}")
    return code


def _refuse(reason: str) -> int:
    print(f"dynadiag: {_one_line(reason)}", file=sys.stderr)  # noqa: T201 - the command line reports here
    return USAGE_ERROR


def _give_up_stdout() -> None:
    """Let what is still buffered go nowhere, or the interpreter would complain at its end."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError:  # a stdout that is no file has no such trouble
        return


class _OurPackages:
    """Finds the packages with ordinary names that are ours, wherever the user's own may stand on the path."""

    _FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - pathlib is slow to load

    @classmethod
    def find_spec(cls, name: str, path: object = None, _target: object = None) -> ModuleSpec | None:
        if path is None and name in ("minifier", "tui"):
            return PathFinder.find_spec(name, [cls._FOLDER])
        return None


def _run(arguments: list[str]) -> int:
    name = next((argument for argument in arguments[:1] if not argument.startswith("-")), None)
    if name not in COMMANDS:
        _overview().parse_args(arguments)  # prints help, the version or a usage error, and exits
        return USAGE_ERROR
    module = import_module(f"dynadiag.commands.{_MODULES.get(name, name)}")
    parser = _Parser(
        prog=f"dynadiag {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.prepare_parser(parser)
    return int(module.run(parser.parse_args(arguments[1:])))


class _Parser(argparse.ArgumentParser):
    """Reports a usage error as every other error of ours: one line, and exit code 2."""

    def error(self, message: str) -> NoReturn:
        raise DynadiagError(f"{message} (see `{self.prog} --help`)")


def _overview() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:<9} {purpose}" for name, purpose in COMMANDS.items())
    parser = _Parser(
        prog="dynadiag",
        usage="dynadiag COMMAND [OPTIONS] TARGET [ARGS...]",
        description="See what torch.compile did with your program, find what is at fault, and make it small.",
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
