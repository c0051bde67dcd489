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
    parser.add_argument("--resume", type=Path, metavar="REC", help="resume the search in this recording")


def linked_file(path: Path) -> Path:
    """The file that a link names, so that the link stays. A loop of links is a path as any other."""
    return Path(os.path.realpath(path))


def add_search_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command that searches by trials."""
    seconds = "a number of seconds"
    told = "compare the results of each compiled call with those of the uncompiled one"
    common.add_flag(parser, "--accuracy", told)
    parser.add_argument("--rtol", type=float, help="relative tolerance of --accuracy (default: by dtype)")
    parser.add_argument("--atol", type=float, help="absolute tolerance of --accuracy (default: by dtype)")
    common.add_amount(parser, "--timeout", seconds, "S", "time limit of one trial in seconds", _TIMEOUT)
    common.add_amount(parser, "--budget", seconds, "S", "time limit of the whole search in seconds")
    common.add_count(parser, "--repeat", "repeats", "try each candidate up to N times", 1)
    common.add_flag(parser, "--fresh", "use no compiler caches")
    told = "run up to N trials side by side (default: all cores but one, or two)"
    common.add_count(parser, "--jobs", "trials", told, default_jobs())
    parser.add_argument("--on", choices=["ray"], help="run the trials as tasks of Ray (pip install 'dynadiag[ray]')")
    rungs = common.names_among(RUNGS, "rung")
    parser.add_argument("--rungs", type=rungs, metavar="A,B", help=f"try only these rungs of {','.join(RUNGS)}")
