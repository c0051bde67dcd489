"""Make a TORCH_TRACE log of a recording: byte for byte the log that it was made from.

The log of a program that dynadiag ran holds torch's events as they came, and dynadiag's own among them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from dynadiag.commands import common
from dynadiag.errors import DynadiagError
from dynadiag.kernels.linked import open_any
from dynadiag.recording.transfer import export_log


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    common.add_output(parser, "the log to write")
    parser.add_argument("recording", type=Path, metavar="REC", help="a recording")


def run(args: argparse.Namespace) -> int:
    if args.output is None:
        raise DynadiagError("export: name the log to write with -o FILE")
    with open_any(args.recording):  # folds what is a journal still
        pass
    export_log(args.recording, args.output, force=args.force)
    common.say_where(args.output)
    return 0
