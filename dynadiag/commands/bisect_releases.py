"""`bisect --torch` and `bisect --python`: the search over releases of torch, as a command.

Its plan says what it tries and installs, and asks whether it may.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.version import Version

from dynadiag.bisection.bisector import HOOKS
from dynadiag.bisection.releases.environments import EnvironmentStore, cache_folder
from dynadiag.bisection.releases.package_index import list_releases, newest_builds
from dynadiag.bisection.releases.release_report import ReleaseChange, ReleaseReport, compare_sides
from dynadiag.bisection.releases.release_search import most_trials
from dynadiag.bisection.releases.release_trials import METRICS, MetricBound, ReleaseTrials
from dynadiag.bisection.releases.requirements import installed_versions, program_packages
from dynadiag.bisection.releases.searcher import ReleaseResult, ReleaseSearcher, TorchRelease
from dynadiag.bisection.releases.version_range import VersionRange, parse_range, public
from dynadiag.bisection.trial_log import TrialLog
from dynadiag.commands import common, outputs
from dynadiag.commands.progress import ProgressPrinter
from dynadiag.commands.search_options import SearchOptions
from dynadiag.commands.target_options import parse_program
from dynadiag.errors import DynadiagError, UnreadableInput
from dynadiag.explanation.formatting import count, duration
from dynadiag.explanation.registry import installed_torch
from dynadiag.render.json_document import encode
from dynadiag.trial.interpreter import Interpreter, probe
from dynadiag.trial.plan import Plan
from dynadiag.trial.program import Program
from dynadiag.trial.supervise import Limits


def add_release_options(parser: argparse.ArgumentParser) -> None:
    group = add_release_range(parser)
    group.add_argument("--metric", choices=METRICS, help="search for this figure going above --most")
    group.add_argument("--most", type=float, metavar="N", help="the largest value of --metric that passes")
    removed = "remove the installed releases (alone, or after the search)"
    common.add_flag(group, "--prune", removed)


def add_release_range(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the options that name releases, and those of their installation. Returns their group."""
    parser.set_defaults(metric=None, most=None, prune=False)
    group = parser.add_argument_group("releases of torch")
    several: dict[str, Any] = {"action": "append", "default": []}
    between = "find between which two of these releases the failure came or went"
    using = "use the release of this interpreter; may be repeated"
    group.add_argument("--torch", metavar="A..B", help=between)
    group.add_argument("--python", **several, type=Path, metavar="PYTHON", help=using)
    common.add_flag(group, "--yes", "install releases without a question")
    told = "install this package with each release"
    group.add_argument("--with", dest="with_", **several, metavar="PKG", help=told)
    group.add_argument("--index", **several, metavar="URL", help="a further package index for torch")
    return group


def asks_for_releases(args: argparse.Namespace) -> bool:
    """Whether the options ask for a search over releases. Raises `DynadiagError` if options of it stand alone."""
    alone = {"--yes": args.yes, "--with": args.with_, "--index": args.index, "--metric": args.metric}
    alone["--prune with a target"] = args.prune and args.target
    wanted = bool(args.torch or args.python)
    for option, value in ({} if wanted else alone).items():
        if value:
            raise DynadiagError(f"{option} belongs to a search over releases: give --torch A..B or --python PYTHON")
    return wanted


def bisects_releases(args: argparse.Namespace) -> bool:
    """Whether `bisect` is to search over releases only. Raises `DynadiagError` if other options do not go with that."""
    wanted = asks_for_releases(args)
    if wanted and (args.resume or args.candidate or args.rungs or args.budget):
        raise DynadiagError("--torch and --python go without --resume, --candidate, --rungs and --budget")
    if (args.metric is None) != (args.most is None):
        raise DynadiagError("--metric NAME and --most N go together: above N the release counts as failing")
    return wanted


def prune() -> int:
    """Remove the environments that earlier searches installed."""
    number, size = EnvironmentStore(cache_folder()).prune()
    sys.stdout.write(f"removed {count(number, 'environment')} ({size / GIGABYTE:.1f} GB) from {cache_folder()}\n")
    return 0


def run(args: argparse.Namespace) -> int:
    """Search over releases and return the exit code."""
    program = parse_program(args)
    output = outputs.new_recording(args.output, program.text, force=args.force)
    with ProgressPrinter(sys.stderr) as progress:
        report = search_releases(program, ReleaseOptions.of(args), output, progress)
    common.write_result(args.json, encode(report.document()), report.text)
    if args.prune:
        EnvironmentStore(cache_folder()).prune()
    common.print_path(output)
    return report.exit_code


def search_releases(
    program: Program, options: ReleaseOptions, output: Path, progress: ProgressPrinter
) -> ReleaseReport:
    """Search over releases, recorded into ``output``.

    Raises `DynadiagError` if there is nothing to search, or the user declines the installs, and `KeyboardInterrupt`
    after Ctrl-C.
    """
    with tempfile.TemporaryDirectory(prefix="dynadiag-") as folder:
        store = _store(program, options)
        plan = plan_search(options, store, Path(folder), progress.message)
        confirm_installs(plan, store, options)
        return _search(program, plan, store, output, Path(folder), options, progress)


def search_with_repro(repro: Path, options: ReleaseOptions, output: Path, progress: ProgressPrinter) -> ReleaseReport:
    """Search with a proved repro: it is quick, needs little but torch, and compares its results itself.

    Raises as `search_releases`.
    """
    plain = replace(options, search=replace(options.search, accuracy=False))
    return search_releases(Program(str(repro)), plain, output, progress)


def confirm_beforehand(program: Program, options: ReleaseOptions, say: Callable[[str], None]) -> None:
    """Ask about the installs of a later search, before long work. Raises `DynadiagError` as `search_releases`."""
    with tempfile.TemporaryDirectory(prefix="dynadiag-") as folder:
        store = _store(program, options)
        confirm_installs(plan_search(options, store, Path(folder), say), store, options)


def _store(program: Program, options: ReleaseOptions) -> EnvironmentStore:
    versions = installed_versions()
    packages = {*(f"{name}=={versions[name]}" for name in program_packages(program)), *options.with_}
    constraints = tuple(f"{name}=={number}" for name, number in sorted(versions.items()))
    return EnvironmentStore(cache_folder(), tuple(sorted(packages)), constraints, options.index)


def _search(
    program: Program,
    plan: SearchPlan,
    store: EnvironmentStore,
    output: Path,
    folder: Path,
    options: ReleaseOptions,
    progress: ProgressPrinter,
) -> ReleaseReport:
    began = time.monotonic()
    asked = {"command": "bisect", "options": _words(options)}
    words = [program.target, *program.arguments]
    log = TrialLog(output, program.text, words, asked=asked, force=options.search.force)
    bound = MetricBound(options.metric, options.most) if options.metric and options.most is not None else None
    plain = Plan(accuracy=options.search.accuracy, tolerance=options.search.tolerance)
    trials = ReleaseTrials(program, folder, Limits.default(options.search.timeout), log, plain, HOOKS, bound)
    numbers = iter(range(1, plan.max_installs + 1))

    def install(requirement: str) -> Interpreter:
        label = f"installing {requirement} ({next(numbers)} of at most {plan.max_installs})"
        progress.message(label)
        kept = store.install(
            requirement,
            lambda size, seconds: progress.status(f"{label}: {size / GIGABYTE:.1f} GB after {duration(seconds)}"),
        )
        progress.message(f"installed {requirement}: {kept.bytes / GIGABYTE:.1f} GB in {duration(kept.seconds)}")
        return probe(kept.python, folder)

    searcher = ReleaseSearcher(
        candidates=plan.candidates,
        own=plan.own,
        trials=trials,
        install=install,
        max_installs=plan.max_installs,
        repeat=options.search.repeat,
        on_trial=lambda one, status, seconds: progress.on_trial(log.count, f"torch {one.version}", status, seconds),
    )
    try:
        with log.kept_after_interrupt(), trials:
            result = searcher.search()
    except KeyboardInterrupt:
        progress.message(f"interrupted after {count(log.count, 'trial')}; releases that are installed stay")
        raise
    report = ReleaseReport(
        target=program.text,
        torch=str(plan.candidates[plan.own].version),
        result=result,
        failure=trials.reference if "same" in result.statuses else None,
        changes=tuple(_changes(result, output, options)),
        kept=_installed_text(store, options),
        trials=log.count,
        seconds=time.monotonic() - began,
    )
    log.add_verdict(encode(report.document()).decode())
    log.finish(report.exit_code, force=True)
    return report


def _words(options: ReleaseOptions) -> list[str]:
    words = ["--torch", options.torch] if options.torch else []
    words += [word for python in options.python for word in ("--python", str(python))]
    words += ["--metric", options.metric, "--most", f"{options.most:g}"] if options.metric else []
    return words + ["--accuracy"] * options.search.accuracy


def _changes(result: ReleaseResult, output: Path, options: ReleaseOptions) -> list[ReleaseChange]:
    """Where the failure came and was mended. The recordings on either side are compared, and kept beside ours."""
    if result.verdict != "found":
        return []
    found = result.boundaries
    printer = common.printer_for(sys.stdout)
    printer = replace(printer, width=printer.columns - 2)
    kept: dict[int, Path] = {}
    changes = []
    for low, high, came in ((found.last_good, found.first_bad, True), (found.last_bad, found.first_good, False)):
        if low is None or high is None:
            continue
        names = [str(result.candidates[index].version) for index in (low, high)]
        recordings = [
            path for index in (low, high) if (path := _move_recording(result, index, output, kept, options)) is not None
        ]
        try:
            changes.append(compare_sides(names[0], names[1], came, recordings, printer))
        except UnreadableInput:
            changes.append(ReleaseChange(names[0], names[1], came))
    return changes


def _move_recording(
    result: ReleaseResult, index: int, output: Path, kept: dict[int, Path], options: ReleaseOptions
) -> Path | None:
    """Move the recording of a release beside that of the search, once. Returns its path, None if there is none."""
    recording = result.trials[index].recording
    if index not in kept and recording is not None:
        name = output.with_stem(f"{output.stem}-torch-{result.candidates[index].version}")
        with outputs.writing(name, force=options.search.force) as scratch:
            shutil.move(recording, scratch)
        kept[index] = name
    return kept.get(index)


def _installed_text(store: EnvironmentStore, options: ReleaseOptions) -> str:
    """What the report says about the releases that are installed."""
    installed = store.all()
    if not installed:
        return ""
    size = sum(one.bytes for one in installed) / GIGABYTE
    what = f"{count(len(installed), 'release')} of torch ({size:.1f} GB) in {store.folder}"
    return f"removed: {what}" if options.prune else f"kept for the next search: {what}; bisect --prune removes them"


GIGABYTE = 1e9


@dataclass(frozen=True, slots=True)
class ReleaseOptions:
    """Which releases a search tries, what counts as failing, and how they are installed and tried."""

    search: SearchOptions
    torch: str | None = None  # A..B
    python: tuple[Path, ...] = ()  # interpreters
    with_: tuple[str, ...] = ()  # packages that are installed with each release
    index: tuple[str, ...] = ()  # further package indexes
    yes: bool = False  # install without a question
    metric: str | None = None
    most: float | None = None
    prune: bool = False

    @classmethod
    def of(cls, args: argparse.Namespace) -> ReleaseOptions:
        """Those of a command line with `add_release_range`."""
        lists = tuple(args.python), tuple(args.with_), tuple(args.index)
        return cls(SearchOptions.of(args), args.torch, *lists, args.yes, args.metric, args.most, args.prune)


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The releases to search, oldest first, the index of our own, and how many may have to be installed.

    ``installs`` are for a failure that only came or only went, ``max_installs`` for one that did both.
    """

    candidates: tuple[TorchRelease, ...]
    own: int
    installs: int
    max_installs: int


def plan_search(
    options: ReleaseOptions, store: EnvironmentStore, folder: Path, say: Callable[[str], None]
) -> SearchPlan:
    """Return the releases to search, and how many installs that takes at most.

    ``say`` gets notes for the user. Raises `DynadiagError` if there is only one release.
    """
    if (installed := installed_torch()) is None:
        raise DynadiagError(f"{sys.executable}: there is no torch in this environment")
    wanted = parse_range(options.torch) if options.torch else None
    own = Interpreter(Path(sys.executable), installed)
    named = [probe(python, folder) for python in options.python]
    found = {**_installable(wanted, options, store, own.torch, folder, say), **_by_release(named)}
    found[public(own.torch)] = TorchRelease(public(own.torch), interpreter=own)
    if len(found) == 1:
        raise DynadiagError(_nothing_to_search(wanted, options, public(own.torch)))
    candidates = tuple(found[key] for key in sorted(found))
    index = next(i for i, one in enumerate(candidates) if one.interpreter is own)
    single, most = most_trials(len(candidates), index, lambda i: candidates[i].interpreter is not None)
    return SearchPlan(candidates, index, single, most)


def _nothing_to_search(wanted: VersionRange | None, options: ReleaseOptions, own: Version) -> str:
    """Why there is only one release, that of this environment."""
    if wanted is None:
        return f"{options.python[0]}: it has the release of this environment, torch {own}"
    but = f" but that of this environment, {own}" if own in wanted else ""
    return f"--torch {options.torch}: the package index has no release in the range{but}"


def _by_release(named: Sequence[Interpreter]) -> dict[Version, TorchRelease]:
    found: dict[Version, TorchRelease] = {}
    for one in named:
        release = public(one.torch)
        if release in found:
            raise DynadiagError(f"--python {one.python}: a second interpreter with torch {release}; name one of them")
        found[release] = TorchRelease(release, interpreter=one)
    return found


def _installable(
    wanted: VersionRange | None,
    options: ReleaseOptions,
    store: EnvironmentStore,
    own: str,
    folder: Path,
    say: Callable[[str], None],
) -> dict[Version, TorchRelease]:
    """The releases in the range: those that are installed already, and those that the index has."""
    if wanted is None:
        return {}
    try:
        builds = newest_builds(list_releases(options.index, prereleases=wanted.prereleases, say=say), own)
    except DynadiagError as error:
        builds = {public(one.version): one.version for one in store.all()}
        if not any(release in wanted for release in builds) and not options.python:
            raise
        say(f"{error}; the search goes on with what is there")
    found: dict[Version, TorchRelease] = {}
    for release, build in builds.items():
        if release in wanted:
            requirement = f"torch=={build}"
            kept = store.find(requirement)
            found[release] = TorchRelease(release, requirement, probe(kept.python, folder) if kept else None)
    return found


def confirm_installs(plan: SearchPlan, store: EnvironmentStore, options: ReleaseOptions) -> None:
    """Say what will be installed, and ask. Raises `DynadiagError` if the answer is no, or if no release has room."""
    if not plan.max_installs:
        return
    store.check_room(
        min((one.requirement for one in plan.candidates if one.interpreter is None), key=store.bytes_of_one)
    )
    sys.stderr.write(_cost(plan, store) + "\n")
    if options.yes:
        return
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        raise DynadiagError("nothing is installed without --yes; --python PYTHON uses releases that are there")
    sys.stderr.write("Install them? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise DynadiagError("nothing was installed; --python PYTHON uses releases that are there")


def _cost(plan: SearchPlan, store: EnvironmentStore) -> str:
    """What the installs take, in words."""
    new = [one for one in plan.candidates if one.interpreter is None]
    largest = max(new, key=lambda one: store.bytes_of_one(one.requirement)).requirement
    size, download = (each / GIGABYTE for each in (store.bytes_of_one(largest), store.bytes_to_download(largest)))
    before = store.seconds_of_one()
    time = f"{duration(before)}, as before" if before else f"{duration(download * 100)} at 10 MB/s"
    more = f" ({plan.max_installs} if it came and was mended)" if plan.max_installs > plan.installs else ""
    names = ", ".join(str(one.version) for one in new)
    free = store.free_bytes() / GIGABYTE
    return (
        f"to install: at most {count(plan.installs, 'release')}{more} of torch {names}\n"
        f"each takes about {size:.1f} GB on disk, {download:.1f} GB to download and {time}; "
        f"at most {plan.max_installs * size:.0f} GB in {store.folder}, where {free:.0f} GB are free"
    )
