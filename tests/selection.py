"""Which tests `make test` runs: three tenths of the CPU time of all.

``long_tests.txt`` has the CPU seconds of each test that takes longer than some limit, the longest first. These are
left out, but of each test function the cheapest case is run unless it takes three times as long as the limit.
``make test-times`` measures all tests, finds the limit that leaves that share of the time, and writes the list. What is
not listed is run: a test that is new or renamed is never left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

__all__ = ["SHARE", "chosen_list", "left_out", "long_tests", "write_long_tests"]

LIST = Path(__file__).with_name("long_tests.txt")
SHARE = 0.3  # of the CPU time of all tests, which `make test` takes at most
ALONE = 3.0  # times the limit: CPU seconds of a case that is kept since its function has no cheaper one


@cache
def long_tests() -> Mapping[str, float]:
    """CPU seconds of each long test, by its id."""
    lines = (line.partition(" ") for line in LIST.read_text().splitlines() if line and not line.startswith("#"))
    return {name: float(seconds) for seconds, _, name in lines}


def left_out(names: Iterable[str], seconds: Mapping[str, float]) -> set[str]:
    """The tests among ``names`` that `make test` does not run. ``seconds`` are those of the long tests."""
    cases = defaultdict(list)
    for name in names:
        cases[name.partition("[")[0]].append(name)
    longest_alone = ALONE * min(seconds.values(), default=0.0)
    found = set()
    for same in cases.values():
        cheapest = min(same, key=lambda name: seconds.get(name, 0.0))
        kept = {cheapest} if seconds.get(cheapest, 0.0) <= longest_alone else set()
        found |= {name for name in same if name in seconds} - kept
    return found


def chosen_list(measured: Mapping[str, float]) -> Mapping[str, float]:
    """The long tests: those above the highest limit that leaves `SHARE` of the CPU seconds of all tests."""
    longest_first = sorted(measured, key=lambda name: -measured[name])
    allowed = SHARE * sum(measured.values())
    few, many = 0, len(longest_first)  # as many of the longest are too few, or enough
    while many - few > 1:
        middle = (few + many) // 2
        out = left_out(measured, {name: measured[name] for name in longest_first[:middle]})
        if sum(seconds for name, seconds in measured.items() if name not in out) > allowed:
            few = middle
        else:
            many = middle
    return {name: measured[name] for name in longest_first[:many]}


def write_long_tests(measured: Mapping[str, float]) -> None:
    """Write the list from the CPU seconds of all tests."""
    lines = [f"{seconds:.2f} {name}" for name, seconds in chosen_list(measured).items()]
    LIST.write_text("\n".join(["# CPU seconds of the long tests; `make test-times` writes them", *lines, ""]))
