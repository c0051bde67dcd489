"""Values put together: by what they have in common, or because one leads to the other."""

from __future__ import annotations

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
