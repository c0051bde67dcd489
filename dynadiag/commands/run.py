"""Run a program with overlays, and nothing else.

An overlay (`dynadiag fix --overlay FILE.py`) changes functions of installed packages when they are imported. It is
loaded before the program begins, and in each Python process that the program starts, when that imports torch. Where a
package has another version than the one that a change was proved for, a warning says so and it is left as it is.

TARGET is FILE.py, -m pkg.mod, FILE.py:NAME or pkg.mod:NAME. Options come before it; words after it belong to the
program. The exit code is the program's own, 128 + N if signal N ended it.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from dynadiag.capture.launch import launch_plain
from dynadiag.commands.target_options import add_target, exit_code, overlay_command, parse_program
from dynadiag.errors import DynadiagError
from dynadiag.overlay import VARIABLE
from dynadiag.trial.program import TargetError


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--overlay", action="append", type=Path, default=[], metavar="FILE.py", help="an overlay; may be given again"
    )
    add_target(parser)


def run(args: argparse.Namespace) -> int:
    program = parse_program(args)
    for path in args.overlay:
        if path.suffix != ".py" or not path.is_file():
            raise DynadiagError(f"--overlay {path}: no such Python file; `dynadiag fix --overlay FILE.py` writes one")
    named = [*(str(path.absolute()) for path in args.overlay), *filter(None, [os.environ.get(VARIABLE)])]
    with tempfile.TemporaryDirectory(prefix="dynadiag-") as folder:
        refusal = Path(folder, "refusal")
        ended = launch_plain(overlay_command(program, refusal), {VARIABLE: os.pathsep.join(named)})
        if refusal.exists():
            raise TargetError(refusal.read_text())
    return exit_code(ended)
