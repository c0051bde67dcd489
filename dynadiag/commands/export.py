"""Convert a recording to a TORCH_TRACE log, byte for byte the log that it was made from.

The log of a program that dynadiag ran contains torch's events as they were written, and dynadiag's own events.

--perfetto FILE writes a trace for ui.perfetto.dev instead (or as well): the phases of each compile, C++ compiles side
by side, lookups in caches, and kernels with arrows from the source lines that they are made of.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from dynadiag.commands import common, outputs
from dynadiag.errors import DynadiagError
from dynadiag.recording.import_export import export_log
from dynadiag.recording.opening import open_recording
from dynadiag.render.trace_events import trace_events


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    outputs.add_output(parser, "the log to write")
    outputs.add_file_option(parser, "--perfetto", "write a trace for ui.perfetto.dev")
    parser.add_argument("recording", type=Path, metavar="REC", help="a recording")


def run(args: argparse.Namespace) -> int:
    wanted = [path for path in (args.output, args.perfetto) if path is not None]
    if not wanted:
        raise DynadiagError("export: name the log file with -o FILE, or a trace with --perfetto FILE")
    for path in wanted:
        outputs.check_writable(path, force=args.force)
    with open_recording(args.recording) as recording:  # fold it first if it is a journal
        if args.perfetto is not None:
            outputs.write_file(args.perfetto, trace_events(recording), force=args.force)
    if args.output is not None:
        with outputs.writing(args.output, force=args.force) as scratch:
            export_log(args.recording, scratch)
    for path in wanted:
        common.print_path(path)
    return 0
