"""Which releases of torch the package index has, asked through pip, so that the user's own settings hold."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib import metadata

from packaging.version import InvalidVersion, Version

from dynadiag.bisection.releases.version_range import public
from dynadiag.errors import DynadiagError

_AVAILABLE = re.compile(r"^Available versions: (.+)$", re.M)
# As pip and uv say it
_NO_NETWORK = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeout|Failed to fetch|error sending request|dns error"
)
_TIMEOUT = 180.0  # seconds; pip gives up on its own after some retries


def list_releases(indexes: Sequence[str], *, prereleases: bool, say: Callable[[str], None]) -> tuple[Version, ...]:
    """The versions of torch that pip finds for this Python, each with its build.

    ``indexes`` are URLs of further indexes. ``say`` is told if one of several could not be reached. Raises
    `DynadiagError` if there is no pip, or if it finds none.
    """
    command = [*_pip(), "index", "versions", "torch", "--retries", "1"]
    command += ["--pre"] * prereleases + [f"--extra-index-url={url}" for url in indexes]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise DynadiagError(
            "the package index did not answer; name interpreters that are there with --python"
        ) from None
    found = _AVAILABLE.search(done.stdout)
    if found is None:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = said[-1].removeprefix("ERROR: ") if said else f"pip ended with {done.returncode}"
        what = "could not be reached" if is_unreachable(done.stderr) else f"names no release of torch ({reason})"
        raise DynadiagError(f"the package index {what}; name interpreters that are there with --python")
    if is_unreachable(done.stderr):
        say("one of the package indexes could not be reached; the search goes on with what the others have")
    return tuple(_versions(found[1].split(",")))


def is_unreachable(log: str) -> bool:
    """Whether an installer says that it could not reach the package index."""
    return _NO_NETWORK.search(log) is not None


def newest_builds(versions: Iterable[Version], own: str) -> dict[Version, str]:
    """Each release with the build to install: one of the same kind as ``own`` (``+cpu``) where the index has it."""
    label = Version(own).local
    chosen: dict[Version, str] = {}
    for version in versions:
        release = public(str(version))
        if version.local is not None and version.local == label:
            chosen[release] = str(version)
        else:
            chosen.setdefault(release, str(release))
    return chosen


def _pip() -> list[str]:
    with suppress(metadata.PackageNotFoundError):
        metadata.version("pip")
        return [sys.executable, "-m", "pip"]
    if (uv := shutil.which("uv")) is not None:
        return [uv, "tool", "run", "pip"]
    raise DynadiagError("there is neither pip nor uv to ask for releases of torch: python -m ensurepip")


def _versions(texts: Iterable[str]) -> Iterable[Version]:
    for text in texts:
        try:
            yield Version(text.strip())
        except InvalidVersion:  # an index may have anything
            continue
