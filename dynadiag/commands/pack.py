"""Pack the recordings of a distributed job into one file, to keep or to send.

What ranks have in common is stored once, so a job of a thousand like ranks needs little more than one of them. Every
command that takes a folder of recordings takes the file, too; FILE/NAME is one recording of it.

A recording that cannot be read is named and left out. Exit code: 0; 2 usage error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from dynadiag.commands import common, outputs
from dynadiag.errors import DynadiagError, UnreadableInput
from dynadiag.recording.opening import list_recordings, open_recording
from dynadiag.recording.packing import Content, is_packed, write_packed


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    outputs.add_output(parser, "the packed job to write (job.dynadiag)")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the folder with the recordings of the job")


def run(args: argparse.Namespace) -> int:
    if args.output is None:
        raise DynadiagError("pack: name the file to write with -o job.dynadiag")
    paths = list_recordings(args.folder)
    left_out: list[str] = []
    with outputs.writing(args.output, force=args.force) as scratch:
        write_packed(_contents([path for path in paths if not is_packed(path)], left_out), scratch)
        if len(left_out) == len(paths):
            raise UnreadableInput(left_out[0])
    for problem in left_out:
        sys.stderr.write(f"left out: {problem}\n")
    common.print_path(args.output)
    return 0


def _contents(paths: Sequence[Path], left_out: list[str]) -> Iterator[Content]:
    for path in paths:
        try:
            with open_recording(path) as recording:
                yield recording.packed_content()
        except UnreadableInput as error:
            left_out.append(str(error))
