"""Convert a TORCH_TRACE log to a recording: a file, or a folder of logs (one recording for each rank).

Nothing in the log is executed and nothing is lost: `dynadiag export` gives the same bytes back.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from dynadiag.commands import common, outputs
from dynadiag.commands.target_options import import_to
from dynadiag.errors import UnreadableInput


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    outputs.add_output(parser, "the recording to write")
    parser.add_argument("log", type=Path, metavar="LOG", help="a log file, or a folder of logs")


def run(args: argparse.Namespace) -> int:
    try:
        if not args.log.exists():
            raise UnreadableInput(f"{args.log}: no such file or folder")
    except (OSError, ValueError) as error:  # not a valid file name
        raise UnreadableInput(f"{str(args.log)[:200]}: {getattr(error, 'strerror', None) or error}") from error
    for path in import_to(args.log, args.output, force=args.force):
        common.print_path(path)
    return 0
