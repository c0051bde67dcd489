"""Run a program and keep its recording, without a report.

TARGET is a program (FILE.py, -m pkg.mod, FILE.py:NAME, pkg.mod:NAME). Options come before TARGET; words after it belong
to the program. `dynadiag explain RECORDING` and `dynadiag browse RECORDING` show what was recorded; the path of the
recording is the last line on stderr.

The exit code is the program's own, 128 + N if signal N ended it.
"""

from __future__ import annotations

import argparse

from dynadiag.commands import common
from dynadiag.commands.target_options import add_recorder_options, add_target, exit_code, parse_program, run_recorded
from dynadiag.kernels.link_digest import fold_with_links


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    common.add_output(parser, "the recording to write")
    add_recorder_options(parser)
    add_target(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    program = parse_program(args)
    recording = common.new_recording(args.output, program.text, force=args.force)
    ended = run_recorded(program, recording, args)
    for path in (recording, *ended.other_journals):
        fold_with_links(path)
    common.print_path(recording)
    return exit_code(ended)
