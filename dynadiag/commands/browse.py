"""Browse a recording in the terminal: what torch.compile did, from your lines to the generated code.

RECORDING is a recording (*.dynadiag), also one that is still being written, or a folder of them: the ranks of a
distributed run, shown side by side. Alone, the newest one in the state folder is opened. Inside, ? shows every key and
ctrl+p every action.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dynadiag.errors import DynadiagError, UnreadableInput


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recording", nargs="?", type=Path, metavar="RECORDING", help="what to open, a folder too (default: the newest)"
    )


def run(args: argparse.Namespace) -> int:
    path = args.recording or _newest()
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise DynadiagError(f"browse needs a terminal; `dynadiag explain {path}` prints what it would show")
    from tui import run as browse

    return browse(path)


def _newest() -> Path:
    from dynadiag.commands.common import state_folder  # not needed where a recording is named

    folder = state_folder()
    found = sorted(folder.glob("*.dynadiag"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise UnreadableInput(
            f"{folder}: no recording there yet; name one, or make one with `dynadiag explain FILE.py`"
        )
    return found[-1]
