"""What is searched, and what a search may spend."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

__all__ = ["Budget", "Candidate", "Oracled", "PartsProblem", "Progress", "ProgressCallback"]

CandidateT = TypeVar("CandidateT", bound=Hashable, contravariant=True)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A choice of parts, and what stands in for the parts that were left out.

    A part that is left out is *cut* (whoever needs it gets an input instead) or *bypassed* (whoever needs it gets
    what the part itself would have read). Cutting keeps values, bypassing keeps dataflow; a failure may need either.
    """

    kept: frozenset[int]
    joined: bool = False  # parts left out are bypassed, not cut
    severed: frozenset[int] = field(default=frozenset())  # cut all the same, where joined
    routes: frozenset[tuple[int, int]] = field(default=frozenset())  # (part, which argument): how one is bypassed


class Oracled(Protocol[CandidateT]):
    """A question that can be asked of candidates."""

    def key(self, candidate: CandidateT) -> str:
        """The canonical form: two candidates with one key are one trial. The same in every process."""

    def fails(self, candidate: CandidateT) -> bool:
        """Whether the candidate fails in the way that is being reduced."""

    def cost(self, candidate: CandidateT) -> int:
        """The size, by which the best candidate so far is chosen."""


class PartsProblem(Oracled[Candidate], Protocol):
    """Parts in an order in which each comes after what it reads."""

    @property
    def parts(self) -> tuple[int, ...]:
        """The parts, in order."""

    def producers(self, part: int) -> frozenset[int]:
        """The parts that this one reads directly. Empty where parts do not know of each other."""

    def closure(self, kept: frozenset[int]) -> frozenset[int]:
        """`kept` and the parts without which dataflow between them would be lost, even with bypassing.

        Must be monotone: a larger set has a larger closure. The search relies on it to bisect.
        """

    def routes(self, part: int) -> tuple[int, ...]:
        """The arguments through which a part can be bypassed, if the choice is open."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What a search may spend; None is no limit. When it is spent the best so far is the answer."""

    calls: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a search stands after a trial: for a progress line, and for a journal (`key` and `failed` resume it)."""

    stage: str
    key: str
    failed: bool
    size: int
    best: int | None
    calls: int
    hits: int
    calls_left: int | None
    seconds_left: float | None


ProgressCallback = Callable[[Progress], None]
