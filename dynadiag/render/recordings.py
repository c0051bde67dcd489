"""The recordings of a folder: the program of each, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dynadiag.errors import DynadiagError
from dynadiag.explanation.formatting import count
from dynadiag.explanation.search import read_search
from dynadiag.recording.journal import SUFFIX
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Run
from dynadiag.render.clean import clean_line

_MAX_LISTED = 500  # recordings that are read
_VERBS = (("break", "broke"), ("recompile", "recompiled"))  # table -> what happened


@dataclass(frozen=True, slots=True)
class ListedRecording:
    """A recording on disk. ``program`` and ``verdict`` are texts for one line; ``good`` says how the program ended."""

    path: Path
    program: str
    verdict: str
    good: bool | None  # None: not known
    size: int  # bytes
    changed: float  # seconds since the epoch


def list_recordings(folders: Iterable[Path], most: int = _MAX_LISTED) -> list[ListedRecording]:
    """Read the newest recordings of some folders. One that cannot be read is listed with the reason."""
    return [_read(path, changed) for path, changed in newest_recordings(folders, most).items()]


def newest_recordings(folders: Iterable[Path], most: int) -> dict[Path, float]:
    """Return the newest recordings of some folders, the newest first, with when each was changed last."""
    found = {path.resolve() for folder in folders for path in folder.glob(f"*{SUFFIX}")}
    known = [(_changed(path), path) for path in found]
    return {path: changed for changed, path in sorted(known, reverse=True)[:most] if changed}


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # deleted in between
        return 0.0


def _read(path: Path, changed: float) -> ListedRecording:
    size = 0
    try:
        size = path.stat().st_size
        with Recording(path) as recording:
            run, totals = recording.run, recording.totals()
            search = _search(recording) if totals.get("trial") else []
    except (DynadiagError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error).removeprefix(f"{path}: ")
        return ListedRecording(path, "?", clean_line(f"cannot be read: {reason}"), None, size, changed)
    program = clean_line((run.target or "?").removeprefix(f"{run.cwd}/"))
    good = None if run.exit_code is None else run.exit_code == 0
    return ListedRecording(path, program, ", ".join([*search, _verdict(run, totals)]), good, size, changed)


def _search(recording: Recording) -> list[str]:
    """The command of a search, and what came of it."""
    if (found := read_search(recording)) is None:
        return []
    said = (found.verdict.verdict or "no answer").replace("_", " ")
    return [f"{found.command or 'search'}: {clean_line(said)}"]


def _verdict(run: Run, totals: dict[str, int]) -> str:
    parts = [f"{verb} {_times(totals[table])}" for table, verb in _VERBS if totals.get(table)]
    parts += [count(totals["trial"], "trial")] if totals.get("trial") else []
    ended = [_end(run.exit_code)] if run.exit_code != 0 else []
    compiled = [] if totals.get("compile") or totals.get("trial") else ["nothing compiled"]
    return ", ".join([*ended, *compiled, *parts]) or count(totals.get("compile", 0), "compile")


def _end(code: int | None) -> str:
    if code is None:
        return "no exit code"
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"
