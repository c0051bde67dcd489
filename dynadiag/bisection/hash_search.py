"""Finds which of many decisions cause a failure, with few trials.

A decision is identified by its hash. So a set of them is a list of hash suffixes, which stays valid when other
decisions appear or disappear (the idea of Go's `bisect`). Keys are ordered as the compiler decides them, not by their
hashes: the kernels of a prefix were compiled before, so most come from the C++ cache.

A minimal failing set is found by binary search with pinning. The shortest failing prefix ends in a culprit; that one is
pinned, and the search continues in the prefix before it. This takes about k log2(n) trials for k culprits that only
fail together. It assumes that adding decisions to a failing set does not hide the failure. The answer is verified by
trials, so a wrong assumption costs trials but never gives a wrong answer. If two trials can run at once, ranges are
split in thirds instead of halves: a fourth more trials in three fifths of the rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence, Set

from dynadiag.trial.plan import hash_bits

Fails = Callable[[frozenset[str]], bool]  # whether it fails with only these decisions on
# Runs the trials of several sets in parallel before `Fails` needs them. With the flag, each set may be the answer: then
# the trial without the set is run too.
Speculate = Callable[[Sequence[frozenset[str]], bool], None]


def _in_order(keys: Collection[str]) -> list[str]:
    """The keys in the given order. A set is ordered by hash, so that the order is always the same."""
    return sorted(keys, key=hash_bits) if isinstance(keys, Set) else list(keys)


def suffixes(chosen: Collection[str], all_keys: Collection[str]) -> tuple[str, ...]:
    """The fewest hash suffixes that match every chosen key and no other known one.

    >>> suffixes({"a", "b"}, {"a", "b"})
    ('',)
    """
    wanted = {hash_bits(key) for key in chosen}
    others = {hash_bits(key) for key in all_keys} - wanted
    return tuple(_suffix_cover("", wanted, others))


def _suffix_cover(suffix: str, wanted: set[str], others: set[str]) -> list[str]:
    if not wanted:
        return []
    if not others:
        return [suffix]
    found = []
    for digit in "01":
        longer = digit + suffix
        found += _suffix_cover(
            longer,
            {b for b in wanted if b.endswith(longer)},
            {b for b in others if b.endswith(longer)},
        )
    return found


def find_minimal_set(keys: Collection[str], fails: Fails, ahead: Speculate | None = None) -> frozenset[str]:
    """A set that fails by itself, and of which every proper subset passes.

    All ``keys`` together must fail. ``fails`` may be called twice with the same set: cache its answers.
    """
    pinned: list[str] = []
    rest = _in_order(keys)
    while end := _shortest_failing_prefix(rest, pinned, fails, ahead):
        pinned.append(rest[end - 1])
        rest = rest[: end - 1]
    return _remove_redundant(pinned, fails)


def _shortest_failing_prefix(rest: Sequence[str], pinned: Sequence[str], fails: Fails, ahead: Speculate | None) -> int:
    """The length of the shortest prefix of ``rest`` that fails together with ``pinned``; 0 where ``pinned`` fails
    alone.
    """
    low, high = -1 if pinned else 0, len(rest)  # the prefix of length `high` fails, that of length `low` does not
    while high - low > 1:
        cuts = _cut_points(low, high, len(pinned), 1 if ahead is None else 2)
        prefixes = {cut: frozenset([*pinned, *rest[:cut]]) for cut in cuts}
        if ahead is not None:
            ahead(list(prefixes.values()), cuts == [0])
        for cut, prefix in prefixes.items():
            if fails(prefix):
                high = cut
                break
            low = cut
    return high


def _cut_points(low: int, high: int, pinned: int, count: int) -> list[int]:
    """The prefix lengths to try between ``low`` and ``high``, in order.

    With two or more keys pinned, the pinned keys alone are tried first: two are more often the answer than not.

    >>> _cut_points(0, 9, 0, 2), _cut_points(-1, 9, 1, 2), _cut_points(-1, 9, 2, 2)
    ([3, 6], [0, 4], [0])
    """
    if low < 0:
        return sorted({0, high // 2})[: count if pinned == 1 else 1]
    return sorted({low + (high - low) * part // (count + 1) for part in range(1, count + 1)} - {low})


def _remove_redundant(pinned: Sequence[str], fails: Fails) -> frozenset[str]:
    """Remove keys without which the rest still fails. Binary search pins such keys only where failures are not
    monotone.
    """
    kept = list(pinned)
    if len(kept) < 3:  # of two, each was needed when it was pinned
        return frozenset(kept)
    for key in pinned:
        fewer = [k for k in kept if k != key]
        if fewer and fails(frozenset(fewer)):
            kept = fewer
    return frozenset(kept)


def find_culprit_sets(keys: Collection[str], fails: Fails, ahead: Speculate | None = None) -> list[frozenset[str]]:
    """Disjoint minimal failing sets, until the rest does not fail.

    Two faults that are each sufficient give two sets; one fault that needs both parts gives one set of two. Ranges of
    keys are tried by themselves. A range doubles after each that passes, and after a fault its length follows the
    distance to that fault. If every second decision is at fault, each costs two or three trials; where one in a
    thousand is, it costs what halving costs (doubling in group testing: Du and Hwang, "Combinatorial Group Testing",
    2000).
    """
    found: list[frozenset[str]] = []
    passed: list[str] = []  # in ranges that pass by themselves, but may fail together
    rest, way = _in_order(keys), 0
    length = max(1, len(rest) // 4)
    while rest:
        stretch = rest[:length]
        if fails(frozenset(stretch)):
            found.append(find_minimal_set(stretch, fails, ahead))
            end = 1 + max(stretch.index(key) for key in found[-1])  # what comes before it passes
            passed += [key for key in stretch[:end] if key not in found[-1]]
            rest, length, way = rest[end:], max(1, (way + end) // 2), 0
        else:
            passed += stretch
            rest, length, way = rest[length:], length * 2, way + length
    while passed and fails(frozenset(passed)):
        found.append(find_minimal_set(passed, fails, ahead))
        passed = [key for key in passed if key not in found[-1]]
    return found
