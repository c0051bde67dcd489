"""Browse a recording in the terminal: what torch.compile did, from your lines to the generated code.

RECORDING is a recording (*.dynadiag), also one that is still being written, or a folder with the recordings of a
distributed run, one for each rank. Several are opened together: < and > go from one to the next. REC#train.py:41 opens
it at that line. Without RECORDING, the newest recording of the state folder opens, below a list of all of them. In the
browser, ? shows every key and ctrl+p every action.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dynadiag.errors import DynadiagError, UnreadableInput


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    told = "a recording or a folder (default: the newest recording)"
    parser.add_argument("recordings", nargs="*", type=Path, metavar="RECORDING", help=told)


def run(args: argparse.Namespace) -> int:
    named = [_split_place(path) for path in args.recordings] or [(_newest(), "")]
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        from tui.terminal_driver import HUNG_UP, has_hung_up

        if has_hung_up():
            return HUNG_UP
        raise DynadiagError(f"browse needs a terminal; `dynadiag explain {named[0][0]}` prints a report instead")
    from dynadiag.commands.state import state_folder  # only needed where there is a terminal
    from tui import run as browse

    return browse([path for path, _ in named], named[0][1], folder=state_folder(), pick=not args.recordings)


def _split_place(recording: Path) -> tuple[Path, str]:
    """Split ``REC#FILE:LINE``. If a file has this very name, it is the recording."""
    name, mark, place = str(recording).rpartition("#")
    return (Path(name), place) if mark and not recording.exists() else (recording, "")


def _newest() -> Path:
    from dynadiag.commands.state import state_folder  # only needed without RECORDING

    folder = state_folder()
    found = sorted(folder.glob("*.dynadiag"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise UnreadableInput(f"{folder}: no recording here yet; name one, or make one with `dynadiag explain FILE.py`")
    return found[-1]
