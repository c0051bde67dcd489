"""The JSON document of a bisection, as types: the schema that `dynadiag schema bisect` prints is made from them."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from dynadiag.diff.difference import Difference
from dynadiag.render.json_document import CommandDocument, LineDocument
from dynadiag.trial.signature import Signature


@dataclass(frozen=True, slots=True)
class FailureDocument:
    """A failure in a document: its signature, with the line of the program that was running, and the rank of a job.

    ``asserted`` is the source of the program's assertion that failed, or of its own ``raise`` statement.
    """

    kind: str
    type: str
    message: str
    where: str | None
    program_line: str | None
    rank: int | None = None
    asserted: str | None = None

    @classmethod
    def of(cls, failure: Signature | None) -> FailureDocument | None:
        """The failure of a trial; None where it passed."""
        if failure is None:
            return None
        return cls(
            failure.kind, failure.type, failure.message, failure.where, failure.user, failure.rank, failure.asserted
        )


class CulpritDocument(msgspec.Struct, frozen=True):
    """A culprit in a document. ``file`` and ``line`` are the last of ``lines``."""

    kind: str = msgspec.field(name="class")
    name: str
    compile_id: str | None
    graph: str | None
    file: str | None
    line: int | None
    lines: tuple[LineDocument, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReleaseChangeDocument:
    """Two releases between which a failure came or was mended, and how their recordings differ.

    ``first`` is the index of the difference that leads. ``commits`` is where the commits between the two can be read.
    """

    before: str
    after: str
    came: bool
    commits: str
    recordings: tuple[str, ...]
    first: int | None
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectDocument(CommandDocument):
    """The JSON document of ``dynadiag bisect``. It has fields beyond the contract."""

    target: str
    verdict: str
    rung: str | None
    rungs: dict[str, str]
    failure: FailureDocument | None
    culprits: tuple[CulpritDocument, ...]
    trials: int
    seconds: float
    notes: tuple[str, ...]
    side_finds: tuple[str, ...]
    confirmed: tuple[str, ...]
    printed: tuple[str, ...]
    reproduce: tuple[str, ...]
    # `bisect --torch` only
    versions: dict[str, str] | None = None
    last_good: str | None = None
    first_bad: str | None = None
    last_bad: str | None = None
    first_good: str | None = None
    installs: int | None = None
    changes: tuple[ReleaseChangeDocument, ...] = ()

    @property
    def since(self) -> str | None:
        """Since which release of torch it fails, and which one mended it; ``None`` if no search over releases says."""
        failing = [release for release, status in (self.versions or {}).items() if status == "same"]
        if self.verdict not in ("found", "fails_in_all") or not failing:
            return None
        came = f"since torch {self.first_bad} ({self.last_good} passes)" if self.first_bad else ""
        still = "" if failing[-1] == failing[0] else f" and still with {failing[-1]}"
        mended = f"; mended in {self.first_good} ({self.last_bad} fails)" if self.first_good else still
        return f"fails {came or f'with torch {failing[0]} already'}{mended}"
