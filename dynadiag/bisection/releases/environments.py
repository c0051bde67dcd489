"""Environments with a release of torch each, kept in the user's cache folder for the next search.

An environment is whole once its file of facts is there; what an interrupted install left is removed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from dynadiag.bisection.releases.package_index import is_unreachable
from dynadiag.errors import DynadiagError
from dynadiag.trial.typed_json import dump, load

_FACTS = "dynadiag.json"
# Bytes of an environment with torch, and of its packages as they are downloaded. A default Linux build brings CUDA's
# libraries: 5.8 GB with 2.14.0, 5.7 GB with 2.15.0, of which 2.5 GB come over the network.
_DEFAULT_BUILD, _DEFAULT_DOWNLOAD = 6_000_000_000, 2_500_000_000
_CPU_BUILD, _CPU_DOWNLOAD = 1_500_000_000, 300_000_000
_PROGRESS_INTERVAL = 5.0  # seconds between two reports of an install: each counts the files that are there
_MAX_REASON = 300  # characters


@dataclass(frozen=True, slots=True)
class _Facts:
    """An environment as it was installed: the packages, the ``bytes`` on disk, and the ``seconds`` that it took."""

    requirement: str
    packages: tuple[str, ...]
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class KeptEnvironment(_Facts):
    """An environment that is there."""

    folder: Path

    @property
    def version(self) -> str:
        """The release, with its build."""
        return self.requirement.partition("==")[2]

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"


def cache_folder() -> Path:
    """The folder of the environments."""
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base or Path.home() / ".cache") / "dynadiag" / "torch"


@dataclass(frozen=True, slots=True)
class EnvironmentStore:
    """The environments below a folder. ``constraints`` hold for what is installed beside torch (``numpy==2.4.6``)."""

    folder: Path
    packages: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()

    def all(self) -> tuple[KeptEnvironment, ...]:
        """The environments that are whole."""
        return tuple(filter(None, map(_read, sorted(self.folder.glob("*/")))))

    def find(self, requirement: str) -> KeptEnvironment | None:
        """The environment with this release and all packages that the program needs."""
        kept = _read(self._folder_of(requirement))
        return kept if kept is not None and set(self.packages) <= set(kept.packages) else None

    def bytes_of_one(self, requirement: str) -> int:
        """What an environment takes on disk: the largest that is kept, else what is usual."""
        usual = _CPU_BUILD if _is_small(requirement) else _DEFAULT_BUILD
        alike = [one.bytes for one in self.all() if _is_small(one.requirement) == _is_small(requirement)]
        return max(alike, default=usual)

    def bytes_to_download(self, requirement: str) -> int:
        """What comes over the network for an environment, as is usual. It is on the disk too until all is installed."""
        return _CPU_DOWNLOAD if _is_small(requirement) else _DEFAULT_DOWNLOAD

    def seconds_of_one(self) -> float | None:
        """What an install took here so far, at most; ``None`` where there was none."""
        return max((one.seconds for one in self.all()), default=None)

    def free_bytes(self) -> int:
        """What is free where the environments go."""
        folder = next(path for path in (self.folder, *self.folder.parents) if path.exists())
        return shutil.disk_usage(folder).free

    def install(
        self, requirement: str, on_progress: Callable[[int, float], None] = lambda _bytes, _seconds: None
    ) -> KeptEnvironment:
        """Make the environment of a release (``torch==2.14.1``).

        ``on_progress`` gets the bytes that are there, and the seconds so far. Raises `DynadiagError` if that fails, if
        there is no room or no folder, or if another search is installing this release.
        """
        folder = self._folder_of(requirement)
        with self._locked(folder):
            if (made := self.find(requirement)) is not None:  # by another search, meanwhile
                return made
            _remove(folder)
            self.check_room(requirement)
            began = time.monotonic()
            try:
                self._run_installer(folder, requirement, on_progress)
            except BaseException:
                _remove(folder)
                raise
            seconds = round(time.monotonic() - began, 1)
            facts = _Facts(requirement, self.packages, _size(folder), seconds)
            (folder / _FACTS).write_text(dump(facts))
        return KeptEnvironment(**asdict(facts), folder=folder)

    def check_room(self, requirement: str) -> None:
        """Raise `DynadiagError` if the disk has no room for an environment and what is downloaded for it."""
        needed = self.bytes_of_one(requirement) + self.bytes_to_download(requirement)
        if (free := self.free_bytes()) < needed:
            raise DynadiagError(
                f"no room in {self.folder}: it takes {needed / 1e9:.1f} GB while it is installed, "
                f"{free / 1e9:.1f} GB are free; XDG_CACHE_HOME names another disk"
            )

    def prune(self) -> tuple[int, int]:
        """Remove all environments, also unfinished ones. Returns their number and their size in bytes."""
        folders = [path for path in sorted(self.folder.glob("*/")) if not path.is_symlink()]
        size = sum(map(_size, folders))
        for folder in folders:
            with self._locked(folder):
                _remove(folder, ignore_errors=False)
        for lock in self.folder.glob("*.lock"):
            lock.unlink()
        with suppress(OSError):  # something of another's is in it
            self.folder.rmdir()
        return len(folders), size

    def _folder_of(self, requirement: str) -> Path:
        return self.folder / f"{requirement.replace('==', '-')}-{sys.implementation.cache_tag}"

    @contextmanager
    def _locked(self, folder: Path) -> Iterator[None]:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = folder.with_name(f"{folder.name}.lock").open("w")
        except OSError as error:
            raise DynadiagError(f"cannot write {self.folder}: {error.strerror}; set XDG_CACHE_HOME") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise DynadiagError(
                    f"{folder}: another search is installing it; start again when it is done"
                ) from error
            yield

    def _run_installer(self, folder: Path, requirement: str, on_progress: Callable[[int, float], None]) -> None:
        """Run the commands. What they download goes beside the environment: there the room was checked."""
        log, constraints, downloads = (folder.with_name(f"{folder.name}.{end}") for end in ("log", "txt", "downloads"))
        try:
            downloads.mkdir(exist_ok=True)
            constraints.write_text("".join(f"{line}\n" for line in self.constraints))
            began = time.monotonic()
            for command in self._commands(folder, requirement, constraints):
                code = _execute(
                    command,
                    log,
                    downloads,
                    lambda: on_progress(_size(folder) + _size(downloads), time.monotonic() - began),
                )
                if code:
                    raise DynadiagError(_reason(log.read_text(errors="replace"), code))
        except OSError as error:
            raise DynadiagError(f"{error.filename}: {error.strerror}") from error
        finally:
            constraints.unlink(missing_ok=True)
            log.unlink(missing_ok=True)
            shutil.rmtree(downloads, ignore_errors=True)

    def _commands(self, folder: Path, requirement: str, constraints: Path) -> list[list[str]]:
        """The commands that make an environment: uv's where it is, else Python's own."""
        python, uv = str(folder / "bin" / "python"), shutil.which("uv")
        wanted = ["-c", str(constraints), *(f"--extra-index-url={url}" for url in self.indexes)]
        wanted += [requirement, *self.packages]
        if uv is not None:
            return [
                [uv, "venv", "--quiet", "--python", sys.executable, str(folder)],
                [uv, "pip", "install", "--quiet", "--python", python, *wanted],
            ]
        pip = [python, "-m", "pip", "install", "--quiet", "--no-input", "--no-cache-dir", *wanted]
        return [[sys.executable, "-m", "venv", str(folder)], pip]


def _remove(folder: Path, *, ignore_errors: bool = True) -> None:
    """Remove an environment. Its facts go first: if this is ended, half an environment is not taken for a whole one."""
    (folder / _FACTS).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=ignore_errors)


def _is_small(requirement: str) -> bool:
    """Whether the build of a release comes without CUDA's libraries."""
    return "+cpu" in requirement or sys.platform != "linux"


def _execute(command: Sequence[str], log: Path, temporary: Path, on_wait: Callable[[], None]) -> int:
    """Run a command with its output in ``log``. Returns its exit code; ``on_wait`` is called now and then."""
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with (
        log.open("ab") as output,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment) as process,
    ):
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    return process.wait(_PROGRESS_INTERVAL)
                on_wait()
        except BaseException:
            process.kill()
            raise


def _read(folder: Path) -> KeptEnvironment | None:
    try:
        kept = KeptEnvironment(**asdict(load((folder / _FACTS).read_bytes(), _Facts)), folder=folder)
    except (OSError, ValueError):  # not whole, or not ours
        return None
    return kept if kept.python.exists() else None


def _size(folder: Path) -> int:
    """The bytes that the files of a folder take. A file with several links counts once."""
    seen: dict[tuple[int, int], int] = {}
    for root, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):  # removed meanwhile
                status = Path(root, name).lstat()
                seen[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(seen.values())


def _reason(log: str, code: int) -> str:
    """Why an installer failed: the last error that it names, and whether the network is behind it."""
    lines: Sequence[str] = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error") and "for help visit" not in line]
    said = errors[-1] if errors else lines[-1] if lines else f"the installer ended with {code}"
    network = "the package index could not be reached: " if is_unreachable(log) else ""
    return f"{network}{said}"[:_MAX_REASON]
