"""The plan of a search over releases of torch: what it tries and installs, and the question whether it may."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from dynadiag.bisection.releases.environments import EnvironmentStore
from dynadiag.bisection.releases.package_index import list_releases, newest_builds
from dynadiag.bisection.releases.release_search import most_trials
from dynadiag.bisection.releases.searcher import TorchRelease
from dynadiag.bisection.releases.version_range import VersionRange, parse_range, public
from dynadiag.commands.search_options import SearchOptions
from dynadiag.errors import DynadiagError
from dynadiag.explanation.formatting import count, duration
from dynadiag.explanation.registry import installed_torch
from dynadiag.trial.interpreter import Interpreter, probe

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

    @property
    def range(self) -> VersionRange | None:
        """The releases of ``--torch``. Raises `DynadiagError` if that is no range."""
        return parse_range(self.torch) if self.torch else None


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
    wanted, own = options.range, Interpreter(Path(sys.executable), _own_torch())
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


def _own_torch() -> str:
    if (found := installed_torch()) is None:
        raise DynadiagError(f"{sys.executable}: there is no torch in this environment")
    return found


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
