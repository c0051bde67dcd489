"""Ranks in words, and numbers that belong to a rank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import gcd

from dynadiag.job.processes import Process


def rank_list(ranks: Iterable[int]) -> str:
    """Ranks as ranges.

    >>> rank_list([3]), rank_list([0, 1, 2, 6])
    ('rank 3', 'ranks 0-2, 6')
    """
    spans: list[list[int]] = []
    for number in sorted(set(ranks)):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    said = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
    return f"rank{'s' if len(spans) > 1 or (spans and spans[0][0] != spans[0][1]) else ''} {said}"


def rank_numbers(ranks: Sequence[Process]) -> tuple[int, ...]:
    """Return the numbers of these ranks, in their order."""
    return tuple(each.rank or 0 for each in ranks)


def name_ranks(ranks: Sequence[Process]) -> str:
    """These ranks, as ranges."""
    return rank_list(rank_numbers(ranks))


def does_not(ranks: Sequence[Process]) -> str:
    """``rank 1 does not``, ``ranks 1-3 do not``."""
    return f"{name_ranks(ranks)} {'does' if len(ranks) == 1 else 'do'} not"


def with_verb(ranks: Sequence[Process], verb: str) -> str:
    """``rank 1 breaks``, ``ranks 1-3 break``."""
    singular = f"{verb}es" if verb.endswith(("ss", "sh")) else f"{verb}s"
    return f"{name_ranks(ranks)} {singular if len(ranks) == 1 else verb}"


def follows_rank(values: Mapping[int, int]) -> bool:
    """Whether a whole number is a shard's: in proportion to the rank, or to the rank and 1, or in even steps.

    Of two ranks any two numbers are in even steps, so these must be in proportion.

    >>> follows_rank({0: 0, 1: 16}), follows_rank({0: 16, 1: 32}), follows_rank({0: 7, 1: 12})
    (True, True, False)
    """
    pairs = sorted(values.items())
    for offset in (0, 1):
        if _proportional([(rank + offset, value) for rank, value in pairs]):
            return True
    return len(pairs) > 2 and _even(pairs)


def are_multiples(one: int, two: int, most: int) -> bool:
    """Whether two numbers are multiples of a third one, and at most so many times that.

    >>> are_multiples(32, 16, 4), are_multiples(7, 12, 4)
    (True, False)
    """
    step = gcd(one, two)
    return step > 0 and max(abs(one), abs(two)) <= step * most


def _proportional(pairs: Sequence[tuple[int, int]]) -> bool:
    (first, value) = pairs[-1]
    return first > 0 and all(value * rank == other * first for rank, other in pairs)


def _even(pairs: Sequence[tuple[int, int]]) -> bool:
    (rank, value), (last, end) = pairs[0], pairs[-1]
    return all((other - value) * (last - rank) == (end - value) * (each - rank) for each, other in pairs)
