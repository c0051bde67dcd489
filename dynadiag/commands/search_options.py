"""The options of every command that searches by trials."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dynadiag.bisection.failing_rung import BisectOptions
from dynadiag.commands import common
from dynadiag.trial.plan import RUNGS
from dynadiag.trial.runner import default_jobs

_TIMEOUT = 600.0  # default limit of a trial in seconds; far more than any sample takes


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How a search tries candidates. ``force`` replaces a recording that is there, ``resume`` is one to go on with."""

    accuracy: bool = False
    rtol: float | None = None
    atol: float | None = None
    timeout: float = _TIMEOUT  # seconds of one trial
    budget: float | None = None  # seconds of the whole search
    repeat: int = 1
    fresh: bool = False
    on: str | None = None
    jobs: int = field(default_factory=default_jobs)
    rungs: tuple[str, ...] | None = None
    resume: Path | None = None
    force: bool = False

    @classmethod
    def of(cls, args: argparse.Namespace) -> SearchOptions:
        """Those of a command line with `add_search_options`."""
        return cls(**{name: getattr(args, name) for name in cls.__slots__ if hasattr(args, name)})

    @property
    def tolerance(self) -> tuple[float, float] | None:
        """(rtol, atol). None if neither is given: each dtype has its own tolerance."""
        return None if self.rtol is None and self.atol is None else (self.rtol or 0.0, self.atol or 0.0)

    @property
    def of_bisection(self) -> BisectOptions:
        """The options of the bisection."""
        return BisectOptions(self.accuracy, self.rungs, self.repeat, self.tolerance)

    def words(self, command: str) -> dict[str, Any]:
        """The command and its options as words of a command line, as the recording of a search keeps them."""
        given = {
            "--rtol": self.rtol,
            "--atol": self.atol,
            "--timeout": self.timeout if self.timeout != _TIMEOUT else None,
            "--repeat": self.repeat if self.repeat != 1 else None,
            "--rungs": ",".join(self.rungs) if self.rungs else None,
            "--budget": self.budget,
            "--on": self.on,
            "--jobs": self.jobs if self.jobs != default_jobs() else None,
        }
        words = ["--accuracy"] * self.accuracy + ["--fresh"] * self.fresh
        words += [word for name, value in given.items() if value is not None for word in (name, f"{value}")]
        return {"command": command, "options": words}


def add_resume(parser: argparse.ArgumentParser) -> None:
    """Add ``--resume``."""
    parser.add_argument("--resume", type=Path, metavar="REC", help="resume the search in this recording")


def linked_file(path: Path) -> Path:
    """The file that a link names, so that the link stays. A loop of links is a path as any other."""
    return Path(os.path.realpath(path))


def add_search_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command that searches by trials."""
    seconds = common.positive_number("a number of seconds")
    parser.add_argument(
        "--accuracy",
        action="store_true",
        help="compare the results of each compiled call with those of the uncompiled one",
    )
    parser.add_argument("--rtol", type=float, help="relative tolerance of --accuracy (default: by dtype)")
    parser.add_argument("--atol", type=float, help="absolute tolerance of --accuracy (default: by dtype)")
    parser.add_argument(
        "--timeout", type=seconds, default=_TIMEOUT, metavar="S", help="time limit of one trial in seconds"
    )
    parser.add_argument("--budget", type=seconds, metavar="S", help="time limit of the whole search in seconds")
    parser.add_argument(
        "--repeat", type=common.positive_int("repeats"), default=1, metavar="N", help="try each candidate up to N times"
    )
    parser.add_argument("--fresh", action="store_true", help="use no compiler caches")
    parser.add_argument(
        "--jobs",
        type=common.positive_int("trials"),
        default=default_jobs(),
        metavar="N",
        help="run up to N trials side by side (default: all cores but one, or two)",
    )
    parser.add_argument("--on", choices=["ray"], help="run the trials as tasks of Ray (pip install 'dynadiag[ray]')")
    parser.add_argument("--rungs", type=_rungs, metavar="A,B", help=f"try only these rungs of {','.join(RUNGS)}")


def _rungs(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in names if name not in RUNGS]
    if unknown or not names:
        raise argparse.ArgumentTypeError(f"no such rung: {', '.join(unknown) or text!r}. Rungs are {', '.join(RUNGS)}")
    return names
