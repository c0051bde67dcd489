"""Why a start compiles although the program was compiled before: what each compile looked up in each cache.

TARGET is a program (FILE.py, -m pkg.mod, FILE.py:NAME, pkg.mod:NAME): it is run twice with caches of its own, empty and
then filled, and the report says why the second start still compiles. Or TARGET is a recording or a TORCH_TRACE log, or
two of them: of the second one the report says which component of each key changed, and what in the program changed it.

A cure that is an option of torch is tried: two more starts with it, of which the second one is measured.

-o names the recording of the second start; that of the first is beside it. The exit code is 0.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dynadiag.caches.cache_report import CacheReport, read_caches
from dynadiag.commands import common, outputs
from dynadiag.commands.target_options import (
    RecordOptions,
    add_recorder_options,
    add_target,
    named_recordings,
    parse_program,
    run_recorded,
)
from dynadiag.errors import DynadiagError
from dynadiag.recording.opening import open_recording
from dynadiag.render.cache_report import cache_report_text, caches_document
from dynadiag.render.json_document import encode
from dynadiag.trial.program import Program

_MAX_RECORDINGS = 2


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    outputs.add_json(parser)
    outputs.add_output(parser, "the recording of the second start")
    told = "do not try cures that are options of torch"
    parser.add_argument("--no-try", dest="try_", action="store_false", help=told)
    add_recorder_options(parser)
    add_target(parser)


def run(args: argparse.Namespace) -> int:
    if not args.target:
        raise DynadiagError("caches: name a program, a recording, or two recordings")
    paths = named_recordings(args)
    if paths is not None and len(paths) > _MAX_RECORDINGS:
        raise DynadiagError(f"{args.target}: {len(paths)} recordings; give one, or two to compare")
    if paths is not None:
        _write_report(_read(paths), args)
        return 0
    return _run_twice(args)


def _run_twice(args: argparse.Namespace) -> int:
    program = parse_program(args)
    second = outputs.new_recording(args.output, program.text, force=args.force)
    first = outputs.new_recording(second.with_stem(f"{second.stem}-first"), program.text, force=args.force)
    if (made := _start_twice(program, (first, second), RecordOptions.of(args), {})) is None:
        return common.INTERRUPTED
    report = _read(made)
    if report.options and args.try_:
        with tempfile.TemporaryDirectory(prefix="dynadiag-") as folder:
            tried = [Path(folder, f"{name}.dynadiag") for name in ("first", "second")]
            sys.stderr.write("the cure can be tried: two more starts (--no-try leaves them out)\n")
            if (again := _start_twice(program, tried, RecordOptions.of(args), report.options)) is None:
                return common.INTERRUPTED
            report = report.with_tried(report.options, _read(again))
    _write_report(report, args)
    for path in made:
        common.print_path(path)
    return 0


def _start_twice(
    program: Program, recordings: Sequence[Path], how: RecordOptions, options: Mapping[str, Any]
) -> list[Path] | None:
    """Start a program twice with caches that are empty at first. Returns the recordings, None after Ctrl-C.

    What it prints goes to stdout, but for starts that only try ``options``.
    """
    streams = (common.STDERR, None) if options else (None, None)
    made: list[Path] = []
    with tempfile.TemporaryDirectory(prefix="dynadiag-caches-") as folder:
        for recording in recordings:
            sys.stdout.flush()
            ran = run_recorded(program, recording, how, caches=Path(folder), streams=streams, options=options)
            made += ran.keep()[:1]
            if ran.ended.interrupted:
                return None
    if len(made) < len(recordings):
        raise DynadiagError(f"{program.text}: it removed its recording while it ran")
    return made


def _read(paths: Sequence[Path]) -> CacheReport:
    with ExitStack() as stack:
        return read_caches([stack.enter_context(open_recording(path)) for path in paths])


def _write_report(report: CacheReport, args: argparse.Namespace) -> None:
    document = encode(caches_document(report))
    common.write_result(args.json, document, lambda printer: cache_report_text(report, printer))
