"""What `dynadiag fix` proves in a folder of programs: for each cause the change, or the reason why there is none.

    python benchmarks/fix.py FOLDER_OR_FILE... [--markdown]

Each program is copied to a scratch folder and searched there as the command does it, but for the two runs in fresh
interpreters: all programs share one process that has torch loaded. A line for each cause: program, cause, verdict,
change or reason; then the share of causes with a proved change, and the seconds of the slowest program. With --markdown
the lines are a table as in docs/fix.md.
"""

from __future__ import annotations

import _paths  # noqa: F401 - for what it does to sys.path

# isort: split

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dynadiag.fixes.edits import Edit
from dynadiag.fixes.fix_report import FixEntry
from dynadiag.fixes.fix_result import document_of
from dynadiag.fixes.fix_search import FailsUncompiled, find_fixes
from dynadiag.fixes.project import Project
from dynadiag.fixes.trials import HOOKS, RecordedRun, Trials
from dynadiag.trial.program import Program
from dynadiag.trial.runner import Runner


class _Forked(Trials):
    """Trials without fresh interpreters."""

    def recorded(
        self,
        label: str,
        edits: Iterable[Edit] = (),
        *,
        fresh: bool = False,  # noqa: ARG002 - as the search calls it
        rung: str | None = None,
    ) -> RecordedRun:
        """A run of a fork, because a fresh interpreter would load torch for every program."""
        return super().recorded(label, edits, rung=rung)


@dataclass(frozen=True)
class Cause:
    """One cause in one program; ``cause`` is empty where the program has none."""

    program: str
    cause: str
    verdict: str
    text: str


def causes_of(program: Path, runner: Runner) -> Iterator[Cause]:
    """Search for fixes of a copy of the program."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch, "program", program.name)
        copy.parent.mkdir()
        shutil.copy(program, copy)
        os.chdir(copy.parent)
        try:
            project = Project.of(Program(str(copy)))
            document = document_of(find_fixes(_Forked(project, runner, _quiet), _quiet), project, 0, 0.0)
        except FailsUncompiled:
            yield Cause(program.stem, "", "fails uncompiled", "")
            return
        finally:
            os.chdir("/")
    if not document.fixes:
        yield Cause(program.stem, "", "nothing to fix", "")
    yield from (_cause(program, entry) for entry in document.fixes)


def _quiet(*_: object) -> None:
    """Ignore what the search reports."""


def _cause(program: Path, entry: FixEntry) -> Cause:
    text = entry.title
    if entry.verdict == "rejected":
        text = "; ".join(f"{one.title}: {one.why}" for one in entry.rejected)
    elif entry.verdict == "none":
        text = f"{entry.why}: {entry.title}"
    what = entry.problem.gb_id or entry.problem.kind
    return Cause(program.stem, f"{what} line {entry.problem.line}", entry.verdict, " ".join(text.split()))


def _programs(places: Iterable[Path]) -> Iterator[Path]:
    for place in places:
        yield from sorted(place.glob("*.py")) if place.is_dir() else [place]


def main() -> None:
    """Fix every program, print each cause and the share that is proved."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="+", type=Path)
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    found: list[Cause] = []
    slowest = 0.0
    programs = [program.absolute() for program in _programs(args.places)]
    with Runner(Program(str(programs[0])), HOOKS, seed=0) as runner:
        runner.start_forks(1, checkpoint=False)
        for program in programs:
            began = time.monotonic()
            for one in causes_of(program, runner):
                found.append(one)
                cells = (one.program, one.cause, one.verdict, one.text.replace("|", "\\|"))
                print(f"| {' | '.join(cells)} |" if args.markdown else "  ".join(cells), flush=True)
            slowest = max(slowest, time.monotonic() - began)
    real = [one for one in found if one.cause]
    proved = sum(one.verdict == "proved" for one in real)
    print(f"{proved} of {len(real)} causes have a proved change; {len(programs)} programs, {slowest:.0f} s at most")


if __name__ == "__main__":
    main()
