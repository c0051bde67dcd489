"""Fixtures and settings for all tests."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests import kept_compiler, shared
from tests.interpreters import keep_environment, leave_out_guard_timing, warm
from tests.selection import left_out, long_tests

# A shell that starts `make test &` in a script has it ignore Ctrl-C, which all that it starts inherits: tests that
# interrupt a command would wait for its end.
signal.signal(signal.SIGINT, signal.default_int_handler)

_SELECTION = pytest.StashKey[tuple[str, bool]]()  # which tests, and whether no test was named
_SHORT = 0.1  # CPU seconds of a test that is not among the long ones, about

# A deadline of an example would fail on a busy machine.
settings.register_profile("dynadiag", deadline=None)
settings.load_profile("dynadiag")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the choice of tests."""
    parser.addoption(
        "--select",
        choices=["quick", "rest", "all"],
        help="of the tests: those of `make test`, the others, or all (default: quick where no test is named, else all)",
    )


@pytest.hookimpl(hookwrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Stop garbage collection while tests are collected, and freeze the modules that are loaded by then.

    Tests compile without the timing of guards. So do the interpreters that they start.
    """
    gc.disable()
    yield
    if "torch" in sys.modules:
        leave_out_guard_timing()
    gc.freeze()
    session.config.add_cleanup(gc.unfreeze)
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not selected, and begin with the files that take longest: no worker is left alone with one."""
    (select, whole_suite), seconds = config.stash[_SELECTION], long_tests()
    if select != "all":
        long = left_out((item.nodeid for item in items), seconds)
        kept = [item for item in items if (item.nodeid in long) == (select == "rest")]
        config.hook.pytest_deselected(items=[item for item in items if (item.nodeid in long) != (select == "rest")])
        items[:] = kept
    if whole_suite:
        files = defaultdict[Path, float](float)
        for item in items:
            files[item.path] += seconds.get(item.nodeid, _SHORT)
        items.sort(key=lambda item: -files[item.path])


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Let a worker of xdist select as this process does: to the worker every test is named."""
    node.workerinput["selection"] = node.config.stash[_SELECTION]


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Say in the last line what was skipped, and why."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput"):
        return
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in reporter.stats.get("skipped", []))
    if reasons:
        reporter.write_line(f"skipped: {'; '.join(f'{number}: {reason}' for reason, number in reasons.most_common())}")


def pytest_configure(config: pytest.Config) -> None:
    """Workers of xdist inherit this process's environment and so use its compiler and its shared folders."""
    kept = contextlib.ExitStack()
    if hasattr(config, "workerinput"):
        config.stash[_SELECTION] = tuple(config.workerinput["selection"])
    else:
        kept.enter_context(shared.use())
        kept.enter_context(_sleeping_threads())
        whole_suite = config.args_source is pytest.Config.ArgsSource.TESTPATHS
        select = config.getoption("select") or ("quick" if whole_suite else "all")
        config.stash[_SELECTION] = (select, whole_suite)
        config.option.warn_unused_snapshots |= select != "all"  # the others are those of tests that are left out
    kept.enter_context(kept_compiler.use())
    config.add_cleanup(kept.close)
    keep_environment()


@contextlib.contextmanager
def _sleeping_threads() -> Iterator[None]:
    """While this lasts, threads of OpenMP that wait for work sleep, where nothing else is asked for.

    Otherwise they spin, and where workers share the cores most of a product's CPU time is that.
    """
    if "OMP_WAIT_POLICY" in os.environ:
        yield
        return
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    try:
        yield
    finally:
        del os.environ["OMP_WAIT_POLICY"]


@pytest.fixture(autouse=True)
def _same_path() -> Iterator[None]:
    """Put ``sys.path`` back: a program that a test runs in this process may have changed it."""
    before = list(sys.path)
    yield
    sys.path[:] = before


@pytest.fixture(scope="module")
def forked_interpreters() -> Iterator[None]:
    """The interpreters that the tests of a module start are forks of one that has torch loaded."""
    with warm():
        yield
