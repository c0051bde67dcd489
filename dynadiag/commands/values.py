"""Show the value of each node of a compiled graph: the first NaN, the first infinity, the first that is wrong.

TARGET is a program (FILE.py, -m pkg.mod, FILE.py:NAME, pkg.mod:NAME), which is run and recorded, or a recording that
was made with --values. Options come before TARGET; words after it belong to the program.

The first call of each compiled graph, forward and backward, is run once more, in a fork of the program: compiled, with
the buffers that its kernels store, and uncompiled, node by node. `off` is a node's own error, against float64 on the
same inputs. A stored value is wrong if float64, from what compiled code stored before it, contradicts it and rounding
does not explain that. The program's own calls are not changed. --calls names other calls, --nodes fewer nodes, --full
nodes whose values are kept whole, as safetensors in a folder beside the recording.

The exit code is the program's own, 0 for a recording.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from dynadiag.commands import common, outputs
from dynadiag.commands.target_options import (
    RecordOptions,
    add_recorder_options,
    add_target,
    add_value_options,
    check_no_value_options,
    exit_code,
    named_recordings,
    parse_program,
    run_recorded,
)
from dynadiag.errors import DynadiagError
from dynadiag.explanation.values import ValueTable
from dynadiag.recording.opening import open_recording
from dynadiag.render.report import report
from dynadiag.render.values import value_report, values_json


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    outputs.add_json(parser)
    outputs.add_output(parser, "the recording to write")
    common.add_flag(parser, "--all", "show every node, not only the first of each call")
    add_recorder_options(parser)
    add_value_options(parser, always=True)
    add_target(parser)


def run(args: argparse.Namespace) -> int:
    if not args.target:
        raise DynadiagError("values: name a program, or a recording that was made with --values")
    paths = named_recordings(args)
    if paths is not None:
        check_no_value_options(args)
        if len(paths) > 1:
            raise DynadiagError(f"{args.target}: {len(paths)} recordings; name one of them, such as {paths[0]}")
        _show(paths[0], args)
        return 0
    program = parse_program(args)
    recording = outputs.new_recording(args.output, program.text, force=args.force)
    ran = run_recorded(program, recording, RecordOptions.of(args))
    made = ran.keep()[:1]
    for path in made:
        _show(path, args, ran=True)
        common.print_path(path)
    return exit_code(ran.ended)


def _show(path: Path, args: argparse.Namespace, *, ran: bool = False) -> None:
    """Print the values of a recording, and write their document."""
    with open_recording(path) as recording:
        explained = report(recording)
    if explained.values is None and not ran:
        raise DynadiagError(f"{path}: it has no values; record it again: dynadiag record --values TARGET")
    run, table = explained.run, explained.values or ValueTable((), (), {})
    document = values_json(table, run.target, run.torch, run.exit_code)
    common.write_result(args.json, document, lambda printer: value_report(explained, replace(printer, all_=args.all)))
