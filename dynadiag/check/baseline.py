"""The baseline of known findings: a sorted JSON file, to be read in a review. A finding is known by its identity, which
contains no line number, local name or text of torch. So moved lines, renamed variables and another release of torch
change no entry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from os.path import relpath
from pathlib import Path

import msgspec

from dynadiag.check.measurement import Measurement, Problem
from dynadiag.errors import UnreadableInput
from dynadiag.grouping import grouped
from dynadiag.recording.code_origin import path_in_packages

VERSION = 1
_MAX_BYTES = 100_000_000


@dataclass(frozen=True, slots=True)
class KnownFinding:
    """A finding that is known, how often one run has it at most, and which targets have it."""

    rule: str
    id: str | None
    identity: str
    count: int
    function: str
    file: str | None
    title: str
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Baseline:
    """The known findings. ``compile_seconds`` has the targets whose budget is relative to them."""

    version: int = VERSION
    known: tuple[KnownFinding, ...] = ()
    compile_seconds: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """The file's content."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"


@dataclass(frozen=True, slots=True)
class BaselineUpdate:
    """What ``--update`` changed in a file. ``dropped`` are findings that are no longer known, or known less often."""

    file: str
    known: int
    added: int
    dropped: tuple[KnownFinding, ...]


def read_baseline(path: Path) -> Baseline:
    """Read a baseline. Raises `UnreadableInput`."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES)
        found = msgspec.json.decode(content, type=Baseline)
    except OSError as error:
        cure = "; --update writes it" if isinstance(error, FileNotFoundError) else ""
        raise UnreadableInput(f"{path}: {error.strerror}{cure}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnreadableInput(
            f"{path}: not a baseline of dynadiag ({error}); name another file, and write it with --update"
        ) from error
    if found.version != VERSION:
        raise UnreadableInput(
            f"{path}: a baseline of version {found.version}, and this dynadiag reads "
            f"{VERSION}; use the dynadiag that wrote it, or name another file, and write it with --update"
        )
    return found


def max_in_one_run(runs: Iterable[Measurement]) -> dict[str, int]:
    """Return the largest number of findings of each identity in one run."""
    max_counts: dict[str, int] = {}
    for run in runs:
        for identity, number in Counter(each.identity for each in run.occurrences).items():
            max_counts[identity] = max(max_counts.get(identity, 0), number)
    return max_counts


def targets_that_ran(runs: Iterable[Measurement], clean: Iterable[str] = ()) -> set[str]:
    """Return the targets of which every run ended well: what these do not have is gone. ``clean`` compiled nothing."""
    return {*clean, *(run.target for run in runs)} - {run.target for run in runs if run.failed}


def updated_baseline(
    old: Baseline,
    runs: Sequence[Measurement],
    root: Path,
    relative: Iterable[str] = (),
    clean: Iterable[str] = (),
) -> Baseline:
    """Return the baseline after these runs.

    Targets that did not run, or failed, keep their known findings. The findings of a failed run are added. The compile
    seconds of the targets in ``relative`` are stored. Paths are relative to ``root``. ``clean`` are further targets,
    which ran and compiled nothing.
    """
    done = [run for run in runs if not run.failed]
    known = {each.identity: each for each in _known_of_others(targets_that_ran(runs, clean), old.known)}
    max_counts, counted = max_in_one_run(runs), {each.identity: each.count for each in old.known}
    found = grouped((each.identity, (run.target, each)) for run in runs for each in run.occurrences)
    for identity, occurrences in found.items():
        kept = known.get(identity)
        entry = _known_finding(occurrences, root)
        known[identity] = replace(
            entry,
            count=max(max_counts[identity], counted[identity]) if kept else max_counts[identity],
            targets=tuple(sorted({*entry.targets, *(kept.targets if kept else ())})),
        )
    seconds = {run.target: run.compile_seconds for run in done if run.target in set(relative)}
    spent = {target: round(value, 1) for target, value in seconds.items() if value is not None}
    order = sorted(known.values(), key=lambda each: (each.file or "", each.function, each.identity))
    return Baseline(known=tuple(order), compile_seconds=dict(sorted({**old.compile_seconds, **spent}.items())))


def changes_of(file: str, before: Baseline, after: Baseline) -> BaselineUpdate:
    old, new = ({each.identity: each.count for each in baseline.known} for baseline in (before, after))
    added = sum(number > old.get(identity, 0) for identity, number in new.items())
    dropped = tuple(each for each in before.known if new.get(each.identity, 0) < each.count)
    return BaselineUpdate(file, len(after.known), added, dropped)


def _known_of_others(targets: set[str], known: Iterable[KnownFinding]) -> Iterable[KnownFinding]:
    """The known findings of other targets than these."""
    for each in known:
        others = tuple(name for name in each.targets if name not in targets)
        if others:
            yield replace(each, targets=others)


def _known_finding(occurrences: Sequence[tuple[str, Problem]], root: Path) -> KnownFinding:
    first = occurrences[0][1]
    return KnownFinding(
        rule=first.rule,
        id=first.gb_id,
        identity=first.identity,
        count=1,
        function=first.function or "",
        file=_relative(first.file, root),
        title=first.text,
        targets=tuple(sorted({target for target, _ in occurrences})),
    )


def _relative(file: str | None, root: Path) -> str | None:
    """A file's path as it is on every machine: from the root, or of a library from its package."""
    if file is None or not file.startswith("/"):
        return file
    inside = relpath(file, root)
    if not inside.startswith(".."):
        return inside
    return path_in_packages(file) or inside
