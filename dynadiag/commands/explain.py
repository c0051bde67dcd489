"""Explain what torch.compile did with a program: every graph, guard, break and recompile, in its own lines.

TARGET is a program (FILE.py, -m pkg.mod, FILE.py:NAME, pkg.mod:NAME), which is run and recorded; or a recording
(*.dynadiag), a TORCH_TRACE log, or a folder of either, which is read without running anything; or the id of a graph
break (GB0124), which is explained. Options come before TARGET; words after it belong to the program.

A program of several processes (torchrun, mp.spawn) leaves one recording for each process that compiles. Each gets a
report. In the JSON, the documents of the other processes are under "ranks".

The exit code is the program's own, 128 + N if signal N ended it; 0 if nothing was run.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dynadiag.commands import common
from dynadiag.commands.target_options import add_recorder_options, add_target, exit_code, parse_program, run_recorded
from dynadiag.commands.target_recordings import existing_recordings
from dynadiag.errors import DynadiagError
from dynadiag.explanation.registry import Registry
from dynadiag.kernels.link_digest import fold_with_links, open_with_links
from dynadiag.render.json_document import document, encode
from dynadiag.render.report import Report, explanation_text, report

_BREAK_ID = re.compile(r"GB\d+", re.IGNORECASE)


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    common.add_json(parser)
    common.add_output(parser, "the recording to write")
    parser.add_argument("--all", action="store_true", help="show everything, not only the worst ten")
    add_recorder_options(parser)
    add_target(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    if not args.target:
        raise DynadiagError("explain: name a program, a recording, a log, or the id of a graph break")
    common.check_json_path(args.json)
    if not args.module and _BREAK_ID.fullmatch(args.target):
        return _explain_id(args)
    readable = None if args.module else existing_recordings(args.target, args.output, force=args.force)
    if readable is not None:
        _report(readable, args)
        return 0
    return _run_program(args)


def _run_program(args: argparse.Namespace) -> int:
    program = parse_program(args)
    recording = common.new_recording(args.output, program.text, force=args.force)
    ended = run_recorded(program, recording, args)
    fold_with_links(recording)
    _report((recording, *ended.other_journals), args)
    common.print_path(recording)
    return exit_code(ended)


def _explain_id(args: argparse.Namespace) -> int:
    from dynadiag.render.entry import entry_json, entry_text

    entry = Registry.installed().lookup(args.target)
    if args.json != "-":
        sys.stdout.write(entry_text(entry, common.style_for(sys.stdout)))
    common.write_json(args.json, entry_json(entry))
    return 0


def _report(paths: Sequence[Path], args: argparse.Namespace) -> None:
    """Report the recordings, one after the other."""
    explanations = [_explanation(path) for path in paths]
    common.write_json(args.json, _json(explanations))
    if args.json != "-":
        for path, explanation in zip(paths, explanations, strict=True):
            shown = str(path) if path.is_absolute() else os.path.relpath(path)
            style = common.style_for(sys.stdout)
            text = explanation_text(explanation, style, all_=args.all, recording=shown, calls=explanation.calls)
            sys.stdout.write(text if path is paths[0] else f"\n{text}")
        sys.stdout.flush()


def _explanation(path: Path) -> Report:
    with open_with_links(path) as recording:
        return report(recording)


def _json(explanations: Sequence[Report]) -> bytes:
    main, *others = [document(explanation, explanation.calls) for explanation in explanations]
    return encode(replace(main, ranks=tuple(others)) if others else main)
