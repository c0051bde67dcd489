"""Which release to try next, and what the trials so far say: a binary search on both sides of a failing release.

The releases that fail are taken to be neighbours: the failure came once and was mended once at most. So a release that
fails is extended to both sides: first the ends of the range are tried, then the middle between the last release that
fails and the next one that passes. A release that cannot be tried, or that fails in another way, is neither; the one
nearest to it takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

MAX_EXPLORED = 4  # releases beside the program's own that are tried while none fails

Status = str  # "same" | "pass" | "different" | "invalid", as in the document


@dataclass(frozen=True, slots=True)
class Boundaries:
    """The releases on either side of where a failure came, and of where it was mended, by their index.

    A side is ``None`` where no release beyond it passes.
    """

    last_good: int | None = None
    first_bad: int | None = None
    last_bad: int | None = None
    first_good: int | None = None

    @property
    def found(self) -> bool:
        """Whether the failure came or was mended within the range."""
        return self.first_bad is not None or self.last_bad is not None


def next_release(statuses: Sequence[Status | None], own: int) -> int | None:
    """The index of the release to try next, ``None`` at the end of the search.

    ``statuses`` are those of all releases, oldest first, ``None`` for those not tried yet. ``own`` is the index of the
    release of the program's own environment.
    """
    if statuses[own] is None:
        return own
    untried = [index for index, status in enumerate(statuses) if status is None]
    if "same" not in statuses:
        explored = len(statuses) - len(untried) - 1
        return _explore(statuses) if explored < MAX_EXPLORED else None
    first, last = _failing(statuses)
    good_after, good_before = _next_pass(statuses, last), _previous_pass(statuses, first)
    after = [index for index in untried if last < index and (good_after is None or index < good_after)]
    before = [index for index in untried if index < first and (good_before is None or index > good_before)]
    if after and good_after is None:
        return after[-1]
    if before and good_before is None:
        return before[0]
    if after and good_after is not None:
        return _nearest(after, (last + good_after) / 2)
    if before and good_before is not None:
        return _nearest(before, (first + good_before) / 2)
    return None


def boundaries(statuses: Sequence[Status | None]) -> Boundaries:
    """Where the failure came and was mended, as far as the trials say."""
    if "same" not in statuses:
        return Boundaries()
    first, last = _failing(statuses)
    before, after = _previous_pass(statuses, first), _next_pass(statuses, last)
    return Boundaries(before, first if before is not None else None, last if after is not None else None, after)


def most_trials(count: int, own: int, is_ready: Callable[[int], bool] = lambda _: False) -> tuple[int, int]:
    """The most releases that a search installs: where the failure only came or only was mended, and where it did both.

    ``is_ready`` says whether a release need not be installed. Found by playing the search on every answer.
    """
    most = [0, 0]
    for first in range(count):
        for last in range(first, count):
            both = first > 0 and last < count - 1
            most[both] = max(most[both], _simulate(count, own, range(first, last + 1), is_ready))
    most[0] = max(most[0], _simulate(count, own, range(0), is_ready))
    return most[0], max(most)


def _simulate(count: int, own: int, failing: range, is_ready: Callable[[int], bool]) -> int:
    statuses: list[Status | None] = [None] * count
    installs = 0
    while (index := next_release(statuses, own)) is not None:
        statuses[index] = "same" if index in failing else "pass"
        installs += index != own and not is_ready(index)
    return installs


def _explore(statuses: Sequence[Status | None]) -> int | None:
    """While none fails: the newest release, the oldest, then the middle of the longest run of untried ones."""
    for end in (len(statuses) - 1, 0):
        if statuses[end] is None:
            return end
    runs: list[list[int]] = [[]]
    for index, status in enumerate(statuses):
        if status is None:
            runs[-1].append(index)
        elif runs[-1]:
            runs.append([])
    longest = max(reversed(runs), key=len)
    return longest[len(longest) // 2] if longest else None


def _failing(statuses: Sequence[Status | None]) -> tuple[int, int]:
    """The first and the last of the newest failing releases that have no passing one between them."""
    last = max(index for index, status in enumerate(statuses) if status == "same")
    first = last
    for index in range(last, -1, -1):
        if statuses[index] == "pass":
            break
        if statuses[index] == "same":
            first = index
    return first, last


def _next_pass(statuses: Sequence[Status | None], last: int) -> int | None:
    return next((index for index in range(last + 1, len(statuses)) if statuses[index] == "pass"), None)


def _previous_pass(statuses: Sequence[Status | None], first: int) -> int | None:
    return next((index for index in range(first - 1, -1, -1) if statuses[index] == "pass"), None)


def _nearest(indices: Sequence[int], middle: float) -> int:
    return min(indices, key=lambda index: abs(index - middle))
