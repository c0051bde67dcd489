"""Find where two runs differ first, stage by stage: breaks, recompiles, guards, graphs, kernels, caches.

A and B are programs (FILE.py, FILE.py:NAME, pkg.mod:NAME), which are run and recorded, recordings (*.dynadiag) or
TORCH_TRACE logs. A program takes no arguments here: record it first (`dynadiag record -o a.dynadiag FILE.py ARGS`).
Two programs share one empty folder of compiler caches, and what they print goes to stderr.

Compiles are matched by code and content. Names, numbers, addresses, moved lines, hashes and times do not count as
differences. The first stage that differs leads the report. Differences in what the runs were given (versions, options
of torch, environment variables, source) are reported as its cause, later stages as its consequences.

The exit code is 0 if the runs are the same (nothing is printed), 1 if they differ.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from dynadiag.commands import common, outputs
from dynadiag.commands.target_options import (
    RecordOptions,
    add_recorder_options,
    add_value_options,
    program_of,
    run_recorded,
)
from dynadiag.diff.comparison import compare_recordings
from dynadiag.diff.difference import COMPILED_STAGES, Comparison
from dynadiag.errors import DynadiagError
from dynadiag.recording.import_export import import_log
from dynadiag.recording.journal import SUFFIX
from dynadiag.recording.opening import has_recordings, list_recordings, open_recording
from dynadiag.recording.reader import Recording
from dynadiag.render.diff import comparison_json, comparison_text, stage_text
from dynadiag.render.printer import Printer

DIFFERENT = 1


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    outputs.add_json(parser)
    common.add_flag(parser, "--all", "show every difference in full")
    parser.add_argument("--stage", choices=COMPILED_STAGES, help="show only the differences of this stage, in full")
    add_recorder_options(parser)
    add_value_options(parser)
    parser.add_argument("before", metavar="A", help="a program, a recording or a log")
    # not "after", which is the recorder's number of calls of a warm-up
    parser.add_argument("other", metavar="B", help="what it is compared with")


def run(args: argparse.Namespace) -> int:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dynadiag-")))
        before = stack.enter_context(_open_target(args.before, 0, args, folder))
        after = stack.enter_context(_open_target(args.other, 1, args, folder))
        found = compare_recordings(before, after)
        document = comparison_json(found, after)
        common.write_result(args.json, document, lambda printer: _text(args, found, before, after, printer))
    return 0 if found.same else DIFFERENT


def _text(args: argparse.Namespace, found: Comparison, before: Recording, after: Recording, printer: Printer) -> str:
    if args.stage is not None:
        return stage_text(found, args.stage, before, after, printer)
    return comparison_text(found, before, after, replace(printer, all_=args.all))


def _open_target(target: str, number: int, args: argparse.Namespace, folder: Path) -> Recording:
    """Open a recording or a log, or record a program and open its recording. ``number`` tells the two apart."""
    path = Path(target)
    if path.suffix != ".py" and (path.is_dir() or has_recordings(path)):
        found: Sequence[Path] = list_recordings(path) if has_recordings(path) else ()
        if len(found) > 1:
            raise DynadiagError(f"{path}: it has {len(found)} recordings; name one of them, such as {found[0]}")
        return open_recording(found[0]) if found else _import_log(path, folder)
    if path.suffix == SUFFIX or (path.suffix != ".py" and path.is_file()):
        try:
            return open_recording(path)
        except DynadiagError:
            if path.suffix == SUFFIX:
                raise
            return _import_log(path, folder)
    program = program_of(target)
    recording = outputs.new_recording(None, program.text, force=False)
    recording = recording.with_stem(f"{recording.stem}-{number}")
    sys.stdout.flush()
    ran = run_recorded(
        program, recording, RecordOptions.of(args, target), caches=folder / "caches", streams=(common.STDERR, None)
    )
    made, *_ = ran.keep() or (recording,)
    common.print_path(made)
    return open_recording(made)


def _import_log(log: Path, folder: Path) -> Recording:
    recordings = import_log(log, folder / f"{len(list(folder.iterdir()))}{SUFFIX}").recordings
    if len(recordings) > 1:
        raise DynadiagError(f"{log}: it has the logs of {len(recordings)} ranks; name one of them")
    return open_recording(recordings[0])
