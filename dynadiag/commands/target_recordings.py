"""The recordings that a target names, or that running it makes."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from dynadiag.commands import common
from dynadiag.commands.target_options import parse_program, run_recorded
from dynadiag.errors import DynadiagError, UnreadableInput
from dynadiag.recording.import_export import import_log
from dynadiag.recording.journal import SUFFIX
from dynadiag.recording.opening import READ_SUFFIXES, fold_in_place, has_recordings, list_recordings, read_head
from dynadiag.recording.packing import is_packed
from dynadiag.recording.untrusted_sqlite import SQLITE_MAGIC

__all__ = ["existing_recordings", "named_recordings", "recordings_of"]


def recordings_of(
    target: str, arguments: tuple[str, ...], *, module: bool, args: argparse.Namespace
) -> tuple[Path, ...]:
    """Return the recordings of one of several targets: existing ones, or those of the program, which is run.

    ``args`` has the options of `add_recorder_options`.
    """
    existing = None if module else existing_recordings(target, None, force=False)
    return existing or _record(target, arguments, module=module, args=args)


def named_recordings(args: argparse.Namespace) -> tuple[Path, ...] | None:
    """Return the recordings that the command line names, None if it names a program.

    A log is converted to a recording at ``args.output``.
    """
    first = None if args.module else existing_recordings(args.target, args.output, force=args.force)
    if first is None:
        return None
    paths = list(first)
    for word in args.arguments:
        more = existing_recordings(word, None, force=False)
        if more is None:
            raise DynadiagError(f"{word}: a program beside a recording; record it first (dynadiag record)")
        paths += more
    return tuple(paths)


def existing_recordings(target: str, output: Path | None, *, force: bool) -> tuple[Path, ...] | None:
    """Return the recordings that a target names, a log converted to ``output``; ``None`` if it is a program."""
    path = Path(target)
    try:
        if has_recordings(path):
            return list_recordings(path)
        if path.is_dir():
            return _import_log(path, output, force=force)
        if path.suffix == ".py":
            return None
        if is_packed(path.parent):
            return (path,)
        if not path.exists():
            if target.endswith(os.sep):
                raise UnreadableInput(f"{target}: no such folder; a process leaves a recording there once it compiles")
            if path.suffix in READ_SUFFIXES:
                raise UnreadableInput(f"{path}: no such file")
            return None
    except OSError as error:
        raise UnreadableInput(f"{target[:200]}: {error.strerror}") from error
    if path.suffix == SUFFIX or read_head(path, len(SQLITE_MAGIC)) == SQLITE_MAGIC:
        return (path,)
    return _import_log(path, output, force=force)


def _import_log(log: Path, output: Path | None, *, force: bool) -> tuple[Path, ...]:
    """Convert a log to recordings, and print the path of the first."""
    recordings = import_log(log, common.new_recording(output, log.name, force=force), force=force).recordings
    common.print_path(recordings[0])
    return recordings


def _record(target: str, arguments: tuple[str, ...], *, module: bool, args: argparse.Namespace) -> tuple[Path, ...]:
    """Run a program and record it, under a new name beside the other recordings."""
    words = argparse.Namespace(target=target, arguments=list(arguments), module=module)
    program = parse_program(words)
    recording = common.new_recording(None, program.text, force=False)
    ended = run_recorded(program, recording, argparse.Namespace(**vars(args) | {"target": target}))
    paths = (recording, *ended.other_journals)
    for path in paths:
        fold_in_place(path)
    common.print_path(recording)
    if ended.interrupted:
        raise KeyboardInterrupt
    return paths
