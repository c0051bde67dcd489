"""Convert a recording to a TORCH_TRACE log, byte for byte the log that it was made from.

The log of a program that dynadiag ran contains torch's events as they were written, and dynadiag's own events.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from dynadiag.commands import common
from dynadiag.errors import DynadiagError
from dynadiag.kernels.link_digest import open_with_links
from dynadiag.recording.import_export import export_log


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    common.add_output(parser, "the log to write")
    parser.add_argument("recording", type=Path, metavar="REC", help="a recording")


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    if args.output is None:
        raise DynadiagError("export: name the log file with -o FILE")
    with open_with_links(args.recording):  # fold it first if it is a journal
        pass
    export_log(args.recording, args.output, force=args.force)
    common.print_path(args.output)
    return 0
