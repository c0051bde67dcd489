"""Import a ``TORCH_TRACE`` log into a recording, and export it again byte for byte."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from dynadiag.errors import UnreadableInput
from dynadiag.recording.fold import fold_into
from dynadiag.recording.log import LogParser
from dynadiag.recording.reader import Recording
from dynadiag.recording.store import atomic_write

_RANK = re.compile(r"rank_?(\d+)")


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The result of an import: the recordings, and the files of the folder that were not logs."""

    recordings: tuple[Path, ...]
    skipped: tuple[Path, ...]


def import_log(log: Path, output: Path, *, force: bool = False) -> ImportResult:
    """Make a recording of a log, or of each log in a folder (torch writes one per rank).

    One log becomes `output`, several as `planned_recordings` says. If one fails, none is written. Raises
    `UnreadableInput` if there is no log, `DynadiagError` if an output exists and `force` is false.
    """
    logs, skipped = _find_logs(log)
    outputs = _output_paths(logs, output)
    with ExitStack() as complete:
        for source, target in zip(logs, outputs, strict=True):
            fold_into(source, complete.enter_context(atomic_write(target, force)))
    return ImportResult(outputs, skipped)


def planned_recordings(log: Path, output: Path) -> tuple[tuple[Path, Path], ...]:
    """Return each log at a path, and the recording that it becomes. Raises `UnreadableInput` if there is no log.

    One log becomes `output`. Several become ``NAME-rank0.dynadiag`` and so on, or ``NAME-0`` if the logs do not name
    their rank.
    """
    logs, _ = _find_logs(log)
    return tuple(zip(logs, _output_paths(logs, output), strict=True))


def export_log(recording: Path, output: Path, *, force: bool = False) -> None:
    """Write the log that a recording was made from, byte for byte.

    Raises `UnreadableInput` if the recording cannot be read, `DynadiagError` if `output` exists and `force` is false.
    """
    with Recording(recording) as source, atomic_write(output, force) as scratch, scratch.open("wb") as file:
        for piece in source.raw():
            file.write(piece)


def _find_logs(path: Path) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """The logs at `path`, and the files there that are not logs."""
    if not path.is_dir():
        return (path,), ()
    files = sorted(entry for entry in path.iterdir() if entry.is_file() and entry.suffix == ".log")
    logs = tuple(file for file in files if _begins_as_log(file))
    if not logs:
        raise UnreadableInput(f"{path}: no TORCH_TRACE log in this folder (they are named *.log)")
    return logs, tuple(file for file in files if file not in logs)


def _begins_as_log(file: Path) -> bool:
    """Whether an event begins in the first megabyte. Other logs of a training script may be in the same folder."""
    try:
        with file.open("rb") as stream:
            parser = LogParser()
            raws = parser.feed(stream.read(1 << 20)) + parser.finish()
    except OSError as error:
        raise UnreadableInput(f"{file}: {error.strerror}") from error
    return any(raw.header is not None for raw in raws)


def _output_paths(logs: tuple[Path, ...], output: Path) -> tuple[Path, ...]:
    if len(logs) == 1:
        return (output,)
    ranks = [match.group(1) for log in logs if (match := _RANK.search(log.name))]
    if len(set(ranks)) == len(logs):
        labels = [f"rank{rank}" for rank in ranks]
    else:
        labels = [str(index) for index in range(len(logs))]
    return tuple(output.with_name(f"{output.stem}-{label}{output.suffix}") for label in labels)
