"""Count a program's operator calls in a second run (`explain --coverage`), for the recording of the first run."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from dynadiag.capture.launch import launch_counted
from dynadiag.commands.target_options import RecordOptions, python_command
from dynadiag.explanation.coverage import COVERAGE, Coverage, FunctionCoverage
from dynadiag.recording.journal import Journal
from dynadiag.trial.program import Program
from dynadiag.trial.sandbox import cache_variables


class Counts(msgspec.Struct):
    """What one process leaves: for each function its file, line, name, and compiled and uncompiled calls."""

    functions: list[tuple[str, int | None, str, int, int]]
    outside: int


def add_coverage(program: Program, recording: Path, args: argparse.Namespace, exit_code: int) -> None:
    """Run a program once more, without its output, and append its counts to the journal of the first run.

    ``exit_code`` is that of the first run. If the second run ended differently, or left no counts, a note says so.
    """
    print("dynadiag: --coverage runs the program a second time", file=sys.stderr, flush=True)  # noqa: T201
    with tempfile.TemporaryDirectory(prefix="dynadiag-") as scratch:
        folder = Path(scratch, "counts")
        folder.mkdir()
        command = python_command(program, args.target, Path(scratch, "refusal"), args.gpu)
        variables = cache_variables(Path(scratch)) if args.fresh else {}
        ended = launch_counted(command, folder, RecordOptions.of(args).settings(), variables)
        found = [msgspec.json.decode(each.read_bytes(), type=Counts) for each in sorted(folder.glob("*.json"))]
    coverage = merge_counts(found, _note(found, ended.exit_code, exit_code))
    journal = Journal.reopen(recording)
    journal.append({COVERAGE: {}}, msgspec.json.encode(coverage).decode(), past_limit=True)
    journal.close()


def _note(found: Sequence[Counts], code: int, first: int) -> str | None:
    """What the counts lack, if anything."""
    if not found:
        return (
            f"nothing was counted: the second run ended with exit code {code} before Python's own end (os._exit, a "
            "signal), never imported torch, or uses torch's profiler itself"
        )
    if code != first:
        return f"the second run, which was counted, ended with exit code {code}, the first with {first}"
    return None


def merge_counts(found: Iterable[Counts], note: str | None = None) -> Coverage:
    """Return the counts of all processes together. Functions with the most uncompiled calls come first."""
    sums: dict[tuple[str, int | None, str], list[int]] = {}
    outside = 0
    for counts in found:
        outside += counts.outside
        for file, line, function, compiled, uncompiled in counts.functions:
            pair = sums.setdefault((file, line, function), [0, 0])
            pair[0] += compiled
            pair[1] += uncompiled
    rows = [FunctionCoverage(name, file, line, *pair) for (file, line, name), pair in sums.items()]
    rows.sort(key=lambda row: -row.uncompiled)
    return Coverage(sum(row.compiled for row in rows), sum(row.uncompiled for row in rows), outside, tuple(rows), note)
