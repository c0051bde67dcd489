"""Why a cache key changed, and what it is found from: the two runs and the components in which their keys differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dynadiag.caches.key_changes import ChangedComponent
from dynadiag.caches.source_changes import ProgramFiles
from dynadiag.recording.records import Compile, Guard, Node, Run, Span

__all__ = ["JOB_VARIABLES", "Cause", "KeyComparison", "RunSide"]

# A process's place in its job, as the recorder names it, and the variable that tells it.
JOB_VARIABLES = {"rank": "RANK", "local_rank": "LOCAL_RANK", "world_size": "WORLD_SIZE"}


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a key changed: a sentence, the user's line if it is known, what to do, and the difference as evidence.

    ``options`` of torch are what to do, where that can be tried: see `BypassReason`.
    """

    text: str
    span: Span | None = None
    cure: str | None = None
    diff: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class RunSide:
    """One of two runs, as far as it explains a key: the compile, and what surrounded it.

    ``options`` are those of torch's configuration as the metrics of the compile have them, ``nodes`` Dynamo's graph,
    ``guards`` those of the compile.
    """

    run: Run
    compile: Compile
    sources: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    nodes: Sequence[Node] = ()
    guards: Sequence[Guard] = ()

    @property
    def files(self) -> ProgramFiles:
        """The program's source."""
        return ProgramFiles(self.run, self.compile, self.sources)


@dataclass(frozen=True, slots=True)
class KeyComparison:
    """Two sides and the components in which their keys differ."""

    changes: tuple[ChangedComponent, ...]
    before: RunSide
    after: RunSide

    def of(self, *groups: str) -> list[ChangedComponent]:
        """The components of these groups that changed."""
        return [change for change in self.changes if change.group in groups]
