"""Which tests cost how much CPU time? A plugin of pytest that writes a line for each test, and a reader of the lines.

    python -m pytest -n 2 --select all -p benchmarks.suite_cpu --cpu-times=FOLDER
    python -m benchmarks.suite_cpu FOLDER

Each process of pytest writes a file of its own into FOLDER. The seconds of a test are those of the process that runs it
and of everything below it: children that have ended, and those that live. The process that interpreters are forked from
(`tests.interpreters`) is left out: whichever test comes first starts it. What a process spends until all tests are
collected is a line of its own. The program writes the long tests to ``tests/long_tests.txt``, and prints what all cost
and what those of `make test` cost: measure all tests.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.selection import chosen_list, left_out, write_long_tests

_TICKS = os.sysconf("SC_CLK_TCK")
_COLLECTING = "collecting"  # stands for a test in the line of it


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add our option."""
    parser.addoption("--cpu-times", metavar="FOLDER", help="write the CPU seconds of each test here")


def pytest_configure(config: pytest.Config) -> None:
    """Measure, if that is asked for."""
    if folder := config.getoption("cpu_times"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        name = os.environ.get("PYTEST_XDIST_WORKER", "main")
        config.pluginmanager.register(_Times(Path(folder, f"{name}.txt")), "suite-cpu-times")


class _Times:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._before = 0.0

    def pytest_collection_finish(self) -> None:
        """Count what this process has spent until now."""
        self._write(_COLLECTING)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Count the test with its fixtures. Those of a module are its first test's."""
        yield
        self._write(item.nodeid)

    def _write(self, name: str) -> None:
        now = tree_seconds()
        with self._path.open("a") as file:
            file.write(f"{now - self._before:.2f} {name}\n")
        self._before = now


def tree_seconds() -> float:
    """CPU seconds of this process, of its children that have ended, and of all processes below it."""
    children, seconds = defaultdict(list), {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            if _is_fork_server(folder):
                fields[11:15] = ["0"] * 4  # with what it compiled for a start
            children[int(fields[1])].append(int(folder.name))
            seconds[int(folder.name)] = sum(int(ticks) for ticks in fields[11:15]) / _TICKS
    below, total = [os.getpid()], 0.0
    while below:
        pid = below.pop()
        total += seconds.get(pid, 0.0)
        below.extend(children[pid])
    return total


def _is_fork_server(folder: Path) -> bool:
    try:
        return b"from tests.interpreters import serve" in (folder / "cmdline").read_bytes()
    except OSError:  # it has ended
        return False


def main(folder: Path) -> None:
    """Write the list of long tests, and print the totals."""
    lines = [line.partition(" ") for file in folder.glob("*.txt") for line in file.read_text().splitlines()]
    collecting = [float(seconds) for seconds, _, name in lines if name == _COLLECTING]
    measured = {name: float(seconds) for seconds, _, name in lines if name != _COLLECTING}
    write_long_tests(measured)
    long = left_out(measured, chosen_list(measured))
    every, quick = sum(measured.values()), sum(seconds for name, seconds in measured.items() if name not in long)
    print(f"collecting: {sum(collecting):.0f} s of CPU in {len(collecting)} processes")
    print(f"all: {len(measured)} tests, {every:.0f} s of CPU")
    print(f"make test: {len(measured) - len(long)} tests, {quick:.0f} s of CPU, {quick / every:.0%}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
