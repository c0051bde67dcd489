"""Which tests `make test` runs: those that cost little CPU time, and of each test function at least its cheapest case.

``long_tests.txt`` has the CPU seconds of each test that took more than a second, the longest first; ``make test-times``
measures them and writes it. What is not listed is run: a test that is new or renamed is never left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

__all__ = ["MAX_ALONE", "MAX_SHORT", "left_out", "long_tests", "write_long_tests"]

LIST = Path(__file__).with_name("long_tests.txt")
MAX_SHORT = (
    1.0  # CPU seconds of a test that `make test` always runs: these are 94 of 100 tests and a quarter of the time
)
MAX_ALONE = 3.0  # CPU seconds of the cheapest case of a function that has no short one


@cache
def long_tests() -> Mapping[str, float]:
    """CPU seconds of each long test, by its id."""
    lines = (line.partition(" ") for line in LIST.read_text().splitlines() if line and not line.startswith("#"))
    return {name: float(seconds) for seconds, _, name in lines}


def left_out(names: Iterable[str], seconds: Mapping[str, float]) -> set[str]:
    """The tests among ``names`` that `make test` does not run."""
    cases = defaultdict(list)
    for name in names:
        cases[name.partition("[")[0]].append(name)
    found = set()
    for same in cases.values():
        cheapest = min(same, key=lambda name: seconds.get(name, 0.0))
        kept = {cheapest} if seconds.get(cheapest, 0.0) <= MAX_ALONE else set()
        found |= {name for name in same if name in seconds} - kept
    return found


def write_long_tests(measured: Mapping[str, float]) -> None:
    """Write the list from the CPU seconds of all tests."""
    long = sorted((-seconds, name) for name, seconds in measured.items() if seconds > MAX_SHORT)
    lines = [f"{-seconds:.1f} {name}" for seconds, name in long]
    LIST.write_text(
        "\n".join(["# CPU seconds of each test that took more than one; `make test-times` writes it", *lines, ""])
    )
