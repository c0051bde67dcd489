"""What a search works on: candidates, the protocol of a problem, the budget and the progress."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

CandidateT = TypeVar("CandidateT", bound=Hashable, contravariant=True)


@dataclass(frozen=True, slots=True)
class PartSelection:
    """A subset of the parts, and how the removed parts are replaced.

    A removed part is *cut* or *bypassed*. If it is cut, its users get a new input with its value. If it is bypassed,
    its users get one of its own arguments. Cutting keeps values, bypassing keeps dataflow; a failure may need either.
    """

    kept: frozenset[int]
    bypass: bool = False  # removed parts are bypassed, not cut
    cut: frozenset[int] = field(default=frozenset())  # removed parts that are cut even so
    routes: frozenset[tuple[int, int]] = field(default=frozenset())  # (part, argument that replaces it in a bypass)


class ReductionProblem(Protocol[CandidateT]):
    """A failure to reduce: which candidates show it."""

    def key(self, candidate: CandidateT) -> str:
        """The identity of a candidate in the memo. It is the same in every process."""

    def fails_each(self, candidates: Sequence[CandidateT]) -> list[bool]:
        """Whether each candidate shows the failure. They may be tried side by side."""

    def cost(self, candidate: CandidateT) -> int:
        """The size of a candidate: the smallest failing one is the best."""


class PartsProblem(ReductionProblem[PartSelection], Protocol):
    """A problem whose candidates are subsets of ordered parts: each part comes after the parts that it reads."""

    @property
    def parts(self) -> tuple[int, ...]:
        """The parts, in order."""

    def producers(self, part: int) -> frozenset[int]:
        """The parts that this one reads directly. Empty if parts are independent."""

    def closure(self, kept: frozenset[int]) -> frozenset[int]:
        """`kept` and the parts that connect them: without these, dataflow would be lost even with bypassing.

        Must be monotone: a larger set has a larger closure. The search relies on this to bisect.
        """

    def routes(self, part: int) -> tuple[int, ...]:
        """The arguments that can replace a part in a bypass, if there are several."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of a search: calls of the oracle and seconds. None is no limit.

    When the budget is spent, the search returns the best candidate so far.
    """

    calls: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ReductionProgress:
    """The state of a search after a trial.

    It serves for a progress line, and for a log: with `key` and `failed` of each trial a search can be resumed.
    `size` is that of the candidate, `best` that of the smallest failing one. `known`: the answer came from the memo.
    """

    stage: str
    key: str
    failed: bool
    size: int
    best: int | None
    calls: int
    hits: int
    calls_left: int | None
    seconds_left: float | None
    known: bool


ProgressCallback = Callable[[ReductionProgress], None]
