"""What `dynadiag fix` proves of programs and models: for each cause the change, or the reason why there is none.

    python benchmarks/fix.py FOLDER_OR_FILE... [--markdown] [--results FILE]
    python benchmarks/fix.py --models [NAME...]

The models are those of `twelve.py`, all or those that are named. Each program is searched in a scratch folder as the
command does it, but for the two runs in fresh interpreters: all programs share one process that has torch loaded. A
line for each cause, also where one change removes several: program, cause, verdict, change or reason; then the share of
causes with a proved change, and the seconds of the slowest program. With --markdown the lines are a table as in
docs/fix.md. What stands in the file of --results, which has the patches too, is not searched again, so that a run can
be stopped and go on.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dynadiag.fixes.edits import Edit, unified_diff
from dynadiag.fixes.fix_report import FixEntry
from dynadiag.fixes.fix_result import entries_of
from dynadiag.fixes.fix_search import find_fixes
from dynadiag.fixes.project import Project
from dynadiag.fixes.prover import NothingToProve
from dynadiag.fixes.trials import HOOKS, RecordedRun, Trials
from dynadiag.trial.program import Program
from dynadiag.trial.runner import Runner

_TWELVE = Path(__file__).with_name("twelve.py")


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


class Cause(msgspec.Struct, frozen=True):
    """One cause in one program; ``cause`` is empty where the program has none."""

    program: str
    cause: str
    verdict: str
    text: str


class Searched(msgspec.Struct, frozen=True):
    """What was found in one program, the patch of all proved changes, and how long the search took."""

    program: str
    causes: tuple[Cause, ...]
    patch: str
    seconds: float


@dataclass(frozen=True)
class Target:
    """One program: the file that is run, with the files beside it, by name."""

    name: str
    files: dict[str, str]


def programs_in(places: Iterable[Path]) -> Iterator[Target]:
    """Each Python file, by itself."""
    for place in places:
        for file in sorted(place.glob("*.py")) if place.is_dir() else [place]:
            yield Target(file.stem, {file.name: file.read_text()})


def models(names: Iterable[str]) -> Iterator[Target]:
    """A program for each model, which makes all its calls."""
    import twelve

    for name in names or twelve.MODELS:
        text = f"from twelve import MODELS\n\nfor call in MODELS[{name!r}]():\n    call()\n"
        yield Target(name, {"model.py": text, "twelve.py": _TWELVE.read_text()})


def search(target: Target, runner: Runner) -> Searched:
    """Search for fixes of a copy of the program."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "program")
        folder.mkdir()
        for name, text in target.files.items():
            Path(folder, name).write_text(text)
        os.chdir(folder)
        try:
            causes, patch = _fixed(target, folder, runner)
        finally:
            os.chdir("/")
    return Searched(target.name, causes, patch, time.monotonic() - began)


def _fixed(target: Target, folder: Path, runner: Runner) -> tuple[tuple[Cause, ...], str]:
    """Return the rows of a program's causes, and its patch."""
    project = Project.of(Program(str(folder / next(iter(target.files)))))
    try:
        result = find_fixes(_Forked(project, runner, _quiet), _quiet)
    except NothingToProve as refused:
        return (Cause(target.name, "", str(refused), ""),), ""
    entries = entries_of(result, project)
    none = Cause(target.name, "", "nothing to fix", "")
    patch = unified_diff({name: project.source(name) for name in result.changed}, result.changed)
    return tuple(_cause(target, entry) for entry in entries) or (none,), patch


def _quiet(*_: object) -> None:
    """Ignore what the search reports."""


def _cause(target: Target, entry: FixEntry) -> Cause:
    text = entry.title
    if entry.verdict == "rejected":
        text = "; ".join(f"{one.title}: {one.why}" for one in entry.rejected)
    elif entry.verdict == "none":
        text = f"{entry.why}: {entry.title}"
    what = entry.problem.gb_id or entry.problem.kind
    return Cause(target.name, f"{what} line {entry.problem.line}", entry.verdict, " ".join(text.split()))


def _known(results: Path | None) -> dict[str, Searched]:
    lines = results.read_text().splitlines() if results is not None and results.exists() else []
    found = [msgspec.json.decode(line, type=Searched) for line in lines]
    return {one.program: one for one in found}


def main() -> None:
    """Fix every program, print each cause and the share that is proved."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="*", type=Path)
    parser.add_argument("--models", nargs="*", metavar="NAME")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--results", type=Path)
    args = parser.parse_args()
    targets = [*programs_in(args.places), *(models(args.models) if args.models is not None else ())]
    results = args.results.absolute() if args.results is not None else None
    known = _known(results)
    with Runner(Program(__file__), HOOKS, seed=0) as runner:
        runner.start_forks(1, checkpoint=False)
        for target in targets:
            if target.name not in known:
                known[target.name] = search(target, runner)
                if results is not None:
                    with results.open("a") as file:
                        file.write(msgspec.json.encode(known[target.name]).decode() + "\n")
            for one in known[target.name].causes:
                cells = (one.program, one.cause, one.verdict, one.text.replace("|", "\\|"))
                print(f"| {' | '.join(cells)} |" if args.markdown else "  ".join(cells), flush=True)
    _print_share([known[target.name] for target in targets])


def _print_share(found: list[Searched]) -> None:
    real = [one for each in found for one in each.causes if one.cause]
    proved = sum(one.verdict == "proved" for one in real)
    slowest = max((each.seconds for each in found), default=0.0)
    print(f"{proved} of {len(real)} causes have a proved change; {len(found)} programs, {slowest:.0f} s at most")


if __name__ == "__main__":
    main()
