"""Explain what torch.compile did with a program: every graph, guard, break and recompile, in its own lines.

TARGET is a program (FILE.py, -m pkg.mod, FILE.py:NAME, pkg.mod:NAME), which is run under the recorder; or a
recording (*.dynadiag), a TORCH_TRACE log, or a folder of either, which is read and nothing is run; or the id of a graph
break (GB0124), which is put in plain words. Options come before TARGET; everything after it is the program's.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

from dynadiag.commands import common
from dynadiag.commands.program import add_program, program_of, run_recorded
from dynadiag.errors import DynadiagError
from dynadiag.explain import Registry, explain
from dynadiag.recording.opening import is_journal, open_any, recordings_in
from dynadiag.recording.transfer import import_log
from dynadiag.render import explanation_json, explanation_text
from dynadiag.render.contents import recording_summary

_BREAK_ID = re.compile(r"GB\d+", re.IGNORECASE)


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    common.add_json(parser)
    common.add_output(parser, "the recording to write")
    parser.add_argument(
        "--summary", action="store_true", help="of a recording: the run and what is in it, nothing more"
    )
    parser.add_argument("--all", action="store_true", help="everything, not the worst ten")
    parser.add_argument("--no-source", action="store_true", help="leave your source text out of the recording")
    parser.add_argument("--stop-after", type=int, metavar="N", help="end the program after N compiles")
    parser.add_argument("--limit", type=float, metavar="GB", default=2.0, help="size cap of the recording (default 2)")
    parser.add_argument("--fresh", action="store_true", help="with empty compiler caches, in a folder of their own")
    add_program(parser)


def run(args: argparse.Namespace) -> int:
    if not args.target:
        raise DynadiagError("explain: name a program, a recording, a log, or the id of a graph break")
    if not args.module and _BREAK_ID.fullmatch(args.target):
        return _explain_id(args)
    readable = None if args.module else _readable(args)
    if readable is not None:
        return max(_report(path, args) for path in readable)
    program = program_of(args)
    recording = common.new_recording(args.output, program.text, force=args.force)
    ended = run_recorded(program, recording, args)
    code = _report(recording, args)
    for other in ended.others:
        _report(other, args, quiet_json=True)
    common.say_where(recording)
    return 130 if ended.interrupted else code


def _explain_id(args: argparse.Namespace) -> int:
    from dynadiag.render.entry import entry_json, entry_text

    entry = Registry.installed().lookup(args.target)
    if args.json != "-":
        sys.stdout.write(entry_text(entry, common.style_for(sys.stdout)))
    common.write_json(args.json, entry_json(entry))
    return 0


def _readable(args: argparse.Namespace) -> tuple[Path, ...] | None:
    """The recordings that TARGET is, where it is no program."""
    path = Path(args.target)
    if path.is_dir():
        own = sorted(path.glob("*.dynadiag"))
        return recordings_in(path) if own else _imported(path, args)
    if path.suffix == ".py" or not path.is_file():
        return None
    if path.suffix == ".dynadiag" or is_journal(path) or _is_database(path):
        return (path,)
    return _imported(path, args)


def _is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\x00"


def _imported(log: Path, args: argparse.Namespace) -> tuple[Path, ...]:
    """A log made elsewhere, as a recording."""
    from dynadiag.recording.digest import Digest

    output = common.new_recording(args.output, log.name, force=args.force)
    made = import_log(log, output, force=args.force, digest=Digest).recordings
    common.say_where(made[0])
    return made


def _report(path: Path, args: argparse.Namespace, *, quiet_json: bool = False) -> int:
    """Show one recording; 1 where its program ended in any other way than 0."""
    with open_any(path) as recording:
        if args.summary:
            sys.stdout.write(recording_summary(recording, common.style_for(sys.stdout)))
            return 0 if recording.run.exit_code in (0, None) else 1
        explanation = explain(recording)
    destination = None if quiet_json else args.json
    common.write_json(destination, explanation_json(explanation))
    if args.json != "-":
        shown = os.path.relpath(path) if not path.is_absolute() else str(path)
        text = explanation_text(explanation, common.style_for(sys.stdout), all_=args.all, recording=shown)
        sys.stdout.write(text)
        sys.stdout.flush()
    return 0 if explanation.run.exit_code in (0, None) else 1
