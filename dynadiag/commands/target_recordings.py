"""The recordings that a target names, or that running it makes."""

from __future__ import annotations

import argparse
import hashlib
import os
import stat
from pathlib import Path

from dynadiag import __version__
from dynadiag.commands import common, outputs
from dynadiag.commands.target_options import RecordOptions, program_of, run_recorded
from dynadiag.errors import DynadiagError, UnreadableInput
from dynadiag.recording.fold import fold
from dynadiag.recording.import_export import import_log, planned_recordings
from dynadiag.recording.journal import SUFFIX, clean_stem
from dynadiag.recording.opening import READ_SUFFIXES, has_recordings, list_recordings, read_head
from dynadiag.recording.packing import is_packed
from dynadiag.recording.reader import Recording
from dynadiag.recording.schema import VERSION
from dynadiag.recording.untrusted_sqlite import SQLITE_MAGIC


def recordings_of(arguments: tuple[str, ...], options: RecordOptions, *, module: bool) -> tuple[Path, ...]:
    """Return the recordings of one of several targets: existing ones, or those of the program, which is run."""
    existing = None if module else existing_recordings(options.target, None, force=False)
    return existing or _record(arguments, options, module=module)


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
            return _already_recorded(target, output, list_recordings(path))
        if path.is_dir():
            return _import_log(path, output, force=force)
        if path.suffix == ".py":
            return None
        if is_packed(path.parent):
            return _already_recorded(target, output, (path,))
        if not path.exists():
            if target.endswith(os.sep):
                raise UnreadableInput(f"{target}: no such folder; a process leaves a recording there once it compiles")
            if path.suffix in READ_SUFFIXES:
                raise UnreadableInput(f"{path}: no such file")
            return None
    except OSError as error:
        raise UnreadableInput(f"{target[:200]}: {error.strerror}") from error
    if path.suffix == SUFFIX or read_head(path, len(SQLITE_MAGIC)) == SQLITE_MAGIC:
        return _already_recorded(target, output, (path,))
    return _import_log(path, output, force=force)


def _already_recorded(target: str, output: Path | None, recordings: tuple[Path, ...]) -> tuple[Path, ...]:
    if output is not None:
        raise DynadiagError(f"{target}: it is recorded already, so -o has nothing to write: leave it out")
    return recordings


def import_to(log: Path, output: Path | None, *, force: bool) -> tuple[Path, ...]:
    """Convert a log, or each log in a folder, to recordings at ``output``, or else in the state folder.

    There a log has one recording, named by the hash of its content: it is made once, however often the log is read.
    """
    if output is not None:
        for _, target in planned_recordings(log, output):
            outputs.new_recording(target, "", force=force)
        return import_log(log, output, force=force).recordings
    made = []
    for source, target in planned_recordings(log, outputs.new_recording(None, log.name, force=False)):
        kept = target.with_name(f"{clean_stem(source.name)}-{_content_key(source)}{SUFFIX}")
        if _is_readable(kept):
            os.utime(kept)  # it is in use, which `dynadiag prune` goes by
        else:
            fold(source, kept, force=True)
        made.append(kept)
    return tuple(made)


def _content_key(log: Path) -> str:
    """The hash of a log and of what makes a recording of it."""
    try:
        with log.open("rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UnreadableInput(f"{log}: not a file")
            content = hashlib.file_digest(file, hashlib.blake2b).digest()
    except OSError as error:
        raise UnreadableInput(f"{log}: {error.strerror}") from error
    return hashlib.blake2b(content + f"{__version__} {VERSION}".encode(), digest_size=8).hexdigest()


def _is_readable(recording: Path) -> bool:
    try:
        Recording(recording).close()
    except UnreadableInput:
        return False
    return True


def _import_log(log: Path, output: Path | None, *, force: bool) -> tuple[Path, ...]:
    """Convert a log to recordings, and print the path of the first."""
    recordings = import_to(log, output, force=force)
    common.print_path(recordings[0])
    return recordings


def _record(arguments: tuple[str, ...], options: RecordOptions, *, module: bool) -> tuple[Path, ...]:
    """Run a program and record it, under a new name beside the other recordings."""
    program = program_of(options.target, arguments, module=module)
    recording = outputs.new_recording(None, program.text, force=False)
    ran = run_recorded(program, recording, options)
    paths = ran.keep()
    if not paths:
        raise DynadiagError(f"{options.target}: it removed its recording while it ran")
    common.print_path(paths[0])
    if ran.ended.interrupted:
        raise KeyboardInterrupt
    return paths
