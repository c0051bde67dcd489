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
from dynadiag.errors import DynadiagError, UnreadableInput
from dynadiag.explanation.registry import Registry
from dynadiag.kernels.link_digest import fold_with_links, open_with_links
from dynadiag.recording.import_export import import_log
from dynadiag.recording.journal import SUFFIX
from dynadiag.recording.opening import list_recordings, read_head
from dynadiag.render.json_document import document, encode
from dynadiag.render.report import Report, explanation_text, report

_BREAK_ID = re.compile(r"GB\d+", re.IGNORECASE)
_SQLITE = b"SQLite format 3\x00"


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
    readable = None if args.module else _existing_recordings(args)
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


def _existing_recordings(args: argparse.Namespace) -> tuple[Path, ...] | None:
    """Return the recordings that TARGET names, or ``None`` if it is a program."""
    path = Path(args.target)
    try:
        if path.is_dir():
            return list_recordings(path) if any(path.glob(f"*{SUFFIX}")) else _import_log(path, args)
        if path.suffix == ".py":
            return None
        if not path.exists():
            if path.suffix == SUFFIX or path.suffix == ".log":
                raise UnreadableInput(f"{path}: no such file")
            return None
    except OSError as error:
        raise UnreadableInput(f"{args.target[:200]}: {error.strerror}") from error
    if path.suffix == SUFFIX or read_head(path, len(_SQLITE)) == _SQLITE:
        return (path,)
    return _import_log(path, args)


def _import_log(log: Path, args: argparse.Namespace) -> tuple[Path, ...]:
    """Convert a log to recordings."""
    output = common.new_recording(args.output, log.name, force=args.force)
    made = import_log(log, output, force=args.force).recordings
    common.print_path(made[0])
    return made


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
