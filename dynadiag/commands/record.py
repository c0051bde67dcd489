"""Run a program and keep its recording, without a report.

TARGET is a program (FILE.py, -m pkg.mod, FILE.py:NAME, pkg.mod:NAME) or a test (FILE.py::TEST). Options come before
TARGET; words after it belong to the program. `dynadiag explain RECORDING` and `dynadiag browse RECORDING` show what
was recorded; the path of the recording is the last line on stderr.

With `-o FOLDER/` any command can be run, such as `dynadiag record -o FOLDER/ -- torchrun --nproc-per-node 8 train.py`:
each rank, and each other process that compiles, leaves a recording in FOLDER. Two other ways do the same: `torchrun
--nproc-per-node 8 --no-python dynadiag record -o FOLDER/ train.py`, which also records each rank's exit code, and
`DYNADIAG_RECORD=FOLDER` in the environment of a job that something else starts. `dynadiag explain FOLDER` makes one
report of all.

The exit code is the program's own, 128 + N if signal N ended it.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from pathlib import Path

from dynadiag.capture.launch import launch_job
from dynadiag.capture.run_metadata import recording_stems
from dynadiag.commands import common, outputs
from dynadiag.commands.target_options import (
    RecordOptions,
    add_recorder_options,
    add_target,
    add_value_options,
    exit_code,
    parse_program,
    run_recorded,
)
from dynadiag.errors import DynadiagError
from dynadiag.recording.journal import SUFFIX
from dynadiag.recording.opening import open_recording


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    told = "the recording to write; or FOLDER/, for a recording of each process"
    parser.add_argument("-o", "--output", action=outputs.OutputOption, metavar="FILE", help=told)
    common.add_flag(parser, "--force", "overwrite an existing file, or add to a folder")
    add_recorder_options(parser)
    add_value_options(parser)
    add_target(parser)


def run(args: argparse.Namespace) -> int:
    folder = None
    if args.output and (args.output.endswith(os.sep) or Path(args.output).is_dir()):
        folder = Path(args.output)
    if folder is not None and args.dashes:
        return _record_command(folder, args)
    program = parse_program(args)
    if folder is not None:
        folder = _make_folder(folder)
        stems = recording_stems(socket.gethostname(), os.environ)
        recording = next(path for stem in stems if not (path := folder / f"{stem}{SUFFIX}").exists())
    else:
        output = None if args.output is None else Path(args.output)
        recording = outputs.new_recording(output, program.text, force=args.force)
    ran = run_recorded(program, recording, RecordOptions.of(args))
    for path in ran.keep()[:1]:
        common.print_path(path)
    return exit_code(ran.ended)


def _make_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DynadiagError(f"cannot make the folder {folder}: {error.strerror}") from error
    return folder


def _record_command(folder: Path, args: argparse.Namespace) -> int:
    """Run any command, with a recording in the folder for each of its processes that compiles."""
    if not args.target:
        raise DynadiagError("record: name a command after --, such as torchrun --nproc-per-node 2 train.py")
    if args.stop_after is not None or args.seconds is not None or args.fresh:
        raise DynadiagError(
            "record: --stop-after, --seconds and --fresh are for one program, not for a command after --"
        )
    if any(_make_folder(folder).glob(f"*{SUFFIX}")) and not args.force:
        raise DynadiagError(f"{folder} has recordings already: name another folder, or --force to add to them")
    ended = launch_job(
        [args.target, *args.arguments], folder, RecordOptions.of(args).settings(whole_values=folder / "values")
    )
    for path in ended.other_journals:
        open_recording(path).close()  # which folds it, unless its process did
    if not ended.other_journals:
        print("dynadiag: no process compiled anything or joined a process group", file=sys.stderr)  # noqa: T201
    common.print_path(folder)
    return exit_code(ended)
