"""Make a recording of a TORCH_TRACE log: a file, or the folder of one (a recording for each rank).

Nothing in the log is executed, and nothing is lost: `dynadiag export` gives the same bytes back.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from dynadiag.commands import common
from dynadiag.errors import UnreadableInput
from dynadiag.recording.digest import Digest
from dynadiag.recording.transfer import import_log


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    common.add_output(parser, "the recording to write")
    parser.add_argument("log", type=Path, metavar="LOG", help="a log file, or a folder of logs")


def run(args: argparse.Namespace) -> int:
    if not args.log.exists():
        raise UnreadableInput(f"{args.log}: no such file or folder")
    output = common.new_recording(args.output, args.log.name, force=args.force)
    for path in import_log(args.log, output, force=args.force, digest=Digest).recordings:
        common.say_where(path)
    return 0
