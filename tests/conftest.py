"""Fixtures and settings for all tests."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests import kept_compiler
from tests.interpreters import warm

# A shell that starts `make test &` in a script has it ignore Ctrl-C, which all that it starts inherits: tests that
# interrupt a command would wait for its end.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A deadline of an example would fail on a busy machine.
settings.register_profile("dynadiag", deadline=None)
settings.load_profile("dynadiag")


def pytest_configure(config: pytest.Config) -> None:
    """Workers of xdist inherit this process's environment and so use its compiler."""
    compiler = contextlib.ExitStack()
    compiler.enter_context(kept_compiler.use())
    config.add_cleanup(compiler.close)


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
