"""Finding which of many decisions cause a failure, with few trials.

A decision is known by its hash, so that a set of them is a list of hash suffixes whatever else turns up while others
are off (the idea of Go's `bisect`). Sets are stretches in the order that the compiler decides in: what it makes of a
stretch from the beginning is what it made of all, so that a trial finds most of its kernels compiled already; the
order of the hashes, which would need fewer suffixes, has it write new ones each time. A minimal failing set is
found by binary search with pinning: the shortest prefix that still fails ends in a culprit; that one is pinned, and
the search goes on in the prefix before it. This takes about k log2(n) trials for k culprits that only fail together;
it assumes that adding decisions to a failing set does not hide the failure, and its answer is tried, so a wrong
assumption costs trials and never gives a wrong answer. Where two trials can be made at once it goes by thirds instead
of halves: a fourth more trials in three fifths of the rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence, Set

from dynadiag.trial.plan import bits

__all__ = ["Ahead", "culprit_sets", "minimal_set", "suffixes"]

Fails = Callable[[frozenset[str]], bool]  # whether it fails with only these decisions on
# Tries two at once for what asks to remember: two sets, or one set and, where it may be the answer, all but that set.
Ahead = Callable[[Sequence[frozenset[str]], bool], None]


def _ordered(keys: Collection[str]) -> list[str]:
    """In the order given; what has none is put in one that is the same every time."""
    return sorted(keys, key=bits) if isinstance(keys, Set) else list(keys)


def suffixes(chosen: Collection[str], all_keys: Collection[str]) -> tuple[str, ...]:
    """The fewest hash suffixes that match every chosen key and no other known one.

    >>> suffixes({"a", "b"}, {"a", "b"})
    ('',)
    """
    wanted = {bits(key) for key in chosen}
    others = {bits(key) for key in all_keys} - wanted
    return tuple(_cover("", wanted, others))


def _cover(suffix: str, wanted: set[str], others: set[str]) -> list[str]:
    if not wanted:
        return []
    if not others:
        return [suffix]
    found = []
    for digit in "01":
        longer = digit + suffix
        found += _cover(
            longer,
            {b for b in wanted if b.endswith(longer)},
            {b for b in others if b.endswith(longer)},
        )
    return found


def minimal_set(keys: Collection[str], fails: Fails, ahead: Ahead | None = None) -> frozenset[str]:
    """A set that fails by itself, and from which nothing can be taken without the failure going.

    ``keys`` altogether must fail. ``fails`` may be asked for the same set twice: remember answers where they are dear.
    """
    pinned: list[str] = []
    rest = _ordered(keys)
    while end := _shortest_failing_prefix(rest, pinned, fails, ahead):
        pinned.append(rest[end - 1])
        rest = rest[: end - 1]
    return _without_passengers(pinned, fails)


def _shortest_failing_prefix(rest: Sequence[str], pinned: Sequence[str], fails: Fails, ahead: Ahead | None) -> int:
    """The length of the shortest prefix of ``rest`` that fails together with what is pinned; 0 where that suffices."""
    low, high = -1 if pinned else 0, len(rest)  # the prefix of length `high` fails, that of length `low` does not
    while high - low > 1:
        cuts = _cuts(low, high, len(pinned), 1 if ahead is None else 2)
        prefixes = {cut: frozenset([*pinned, *rest[:cut]]) for cut in cuts}
        if ahead is not None:
            ahead(list(prefixes.values()), cuts == [0])
        for cut, prefix in prefixes.items():
            if fails(prefix):
                high = cut
                break
            low = cut
    return high


def _cuts(low: int, high: int, pinned: int, count: int) -> list[int]:
    """Where to look between the two, in order: at what is pinned by itself first, then at equal distances.

    Two that are pinned are the answer more often than not.
    """
    if low < 0:
        return sorted({0, high // 2})[: count if pinned == 1 else 1]
    return sorted({low + (high - low) * part // (count + 1) for part in range(1, count + 1)} - {low})


def _without_passengers(pinned: Sequence[str], fails: Fails) -> frozenset[str]:
    """Binary search pins nothing needless where failures are monotone; else this takes it out."""
    kept = list(pinned)
    if (
        len(kept) < 3
    ):  # each of two was needed when it was pinned: the first alone did not fail, the second completes it
        return frozenset(kept)
    for key in pinned:
        fewer = [k for k in kept if k != key]
        if fewer and fails(frozenset(fewer)):
            kept = fewer
    return frozenset(kept)


def culprit_sets(keys: Collection[str], fails: Fails, ahead: Ahead | None = None) -> list[frozenset[str]]:
    """Disjoint minimal failing sets, until what is left does not fail.

    Two faults that each suffice make two sets; one that needs both parts makes one set of two. Stretches are tried by
    themselves, twice as long after each that passes and as long as the last way to a fault suggests: where every other
    decision is at fault one costs two or three trials, where one of a thousand is, what halving costs (doubling in
    group testing: Du and Hwang, "Combinatorial Group Testing", 2000).
    """
    found: list[frozenset[str]] = []
    passed: list[str] = []  # by stretches: together they may fail all the same
    rest, way = _ordered(keys), 0
    length = max(1, len(rest) // 4)
    while rest:
        stretch = rest[:length]
        if fails(frozenset(stretch)):
            found.append(minimal_set(stretch, fails, ahead))
            end = 1 + max(stretch.index(key) for key in found[-1])  # what comes before it passes
            passed += [key for key in stretch[:end] if key not in found[-1]]
            rest, length, way = rest[end:], max(1, (way + end) // 2), 0
        else:
            passed += stretch
            rest, length, way = rest[length:], length * 2, way + length
    while passed and fails(frozenset(passed)):
        found.append(minimal_set(passed, fails, ahead))
        passed = [key for key in passed if key not in found[-1]]
    return found
