"""Show what may go of the folder in which recordings without a name of their own are kept, and remove it with --yes.

The folder is $XDG_STATE_HOME/dynadiag, or ~/.local/state/dynadiag. The newest results stay, up to --keep GB. With
--older-than, only what has not been written or read for so many days may go. What a program that runs is writing, and
what dynadiag does not know, always stays. Nothing is removed without --yes.

Exit code: 0; 2 usage error.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dynadiag.commands import common, outputs, state
from dynadiag.errors import DynadiagError
from dynadiag.explanation.formatting import count
from dynadiag.recording.opening import is_being_written
from dynadiag.render.clean import clean_line
from dynadiag.render.json_document import CommandDocument, encode
from dynadiag.render.printer import Printer

_MAX_SHOWN = 20  # results that the text lists; the JSON has all
_DAY = 86400.0


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A result in the folder: its path, the bytes on disk, when it was last written, and whether it may go."""

    path: str
    bytes: int
    modified: float
    goes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneDocument(CommandDocument):
    """The document of ``prune --json``. ``bytes`` is the size of all results before, ``freed`` of what goes."""

    torch: str | None
    folder: str
    bytes: int
    freed: int
    removed: bool
    results: tuple[StoredResult, ...]


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    outputs.add_json(parser)
    number, keep = common.number_from_0, state.STATE_BYTES / 1e9
    told = f"keep the newest results up to this size (default {keep:g})"
    parser.add_argument("--keep", type=number, default=keep, metavar="GB", help=told)
    parser.add_argument("--older-than", type=number, default=0.0, metavar="DAYS", help="let only older results go")
    common.add_flag(parser, "--yes", "remove what may go")


def run(args: argparse.Namespace) -> int:
    folder = state.state_folder()
    results = tuple(_judged(folder, args.keep * 1e9, time.time() - args.older_than * _DAY))
    going = [each for each in results if each.goes]
    if args.yes:
        for each in going:
            _remove(Path(each.path))
    document = PruneDocument(
        torch=None,
        folder=str(folder),
        bytes=sum(each.bytes for each in results),
        freed=sum(each.bytes for each in going),
        removed=args.yes,
        results=results,
    )
    common.write_result(args.json, encode(document), lambda printer: _text(document, going, printer))
    return 0


def _judged(folder: Path, keep: float, before: float) -> Iterator[StoredResult]:
    """The results, the newest first, and which of them may go."""
    total = 0
    for path, size, modified in sorted(state.stored_results(folder), key=lambda each: -each[2]):
        total += size
        yield StoredResult(str(path), size, modified, total > keep and modified < before and not _is_in_use(path))


def _is_in_use(path: Path) -> bool:
    return any(is_being_written(each) for each in (path.rglob("*") if path.is_dir() else [path]))


def _remove(path: Path) -> None:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise DynadiagError(f"cannot remove {error.filename or path}: {error.strerror}") from error


def _text(document: PruneDocument, going: Sequence[StoredResult], printer: Printer) -> str:
    size, freed = document.bytes / 1e9, document.freed / 1e9
    head = f"{count(len(document.results), 'result')}, {size:.2f} GB, in {clean_line(document.folder)}\n"
    if not going:
        return f"{head}nothing has to go\n"
    lines = [f"  {each.bytes / 1e6:>9.1f} MB  {_day(each)}  {clean_line(Path(each.path).name)}\n" for each in going]
    more = len(lines) - _MAX_SHOWN
    listed = "".join(lines[:_MAX_SHOWN]) + (f"  and {more:,} more (--json lists all)\n" if more > 0 else "")
    what = f"{count(len(going), 'result')}, {freed:.2f} GB"
    end = f"removed {what}" if document.removed else f"{what} may go; `dynadiag prune --yes` removes them"
    return f"{head}{listed}{printer.paint(end, 'good' if document.removed else 'help')}\n"


def _day(result: StoredResult) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(result.modified))
