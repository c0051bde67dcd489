"""Values put together: by what they have in common, or because one leads to the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of each key, both in the order of the pairs.

    >>> grouped([("a", 1), ("b", 2), ("a", 3)])
    {'a': [1, 3], 'b': [2]}
    """
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def paired(before: Iterable[tuple[K, V]], after: Iterable[tuple[K, V]]) -> list[tuple[V, V]]:
    """Return the values of both sides that have one key, the first with the first, in the order of ``after``.

    A value whose key is None has no partner.

    >>> paired([("a", 1), ("b", 2), ("a", 3)], [("a", 4), ("a", 5), ("a", 6)])
    [(1, 4), (3, 5)]
    """
    waiting = {key: deque(values) for key, values in grouped(before).items() if key is not None}
    return [(waiting[key].popleft(), value) for key, value in after if waiting.get(key)]


def reached(start: Iterable[K], following: Callable[[K], Iterable[K]]) -> set[K]:
    """Return all that is reached from ``start``, and that itself.

    >>> sorted(reached([6], lambda number: [number // 2, number // 3]))
    [0, 1, 2, 3, 6]
    """
    found: set[K] = set()
    waiting = [*start]
    while waiting:
        if (value := waiting.pop()) not in found:
            found.add(value)
            waiting += following(value)
    return found
