"""What pytest loads in every environment that has dynadiag: options, marker and fixture.

Nothing else of ours is loaded, and no hook of ours runs at a test, until ``--dynadiag``, the marker or the fixture asks
for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dynadiag.testing.fixture import CompileChecker

_MARKER = (
    "dynadiag(max_breaks, max_recompiles, max_graphs, max_compile_seconds): fail the test if torch.compile has more of "
    "these in it; torch's caches in memory are emptied first"
)
_RECORDING = "dynadiag-recording"  # name of the plugin that records


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add our options."""
    group = parser.getgroup("dynadiag", "what torch.compile does in the tests")
    group.addoption("--dynadiag", action="store_true", help="record each test, and report graph breaks and recompiles")
    group.addoption(
        "--dynadiag-baseline", metavar="FILE", help="fail if a graph break or recompile is not in this file"
    )
    group.addoption("--dynadiag-update", action="store_true", help="write the baseline from what the tests have now")
    group.addoption("--dynadiag-recordings", metavar="FOLDER", help="keep the recording of each test here")


def pytest_configure(config: pytest.Config) -> None:
    """Record if an option asks for it."""
    config.addinivalue_line("markers", _MARKER)
    names = ("dynadiag", "dynadiag_baseline", "dynadiag_update", "dynadiag_recordings")
    if any(config.getoption(name) for name in names):
        _start(config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Record if a test has the marker."""
    if any(item.get_closest_marker("dynadiag") for item in items):
        _start(config)


def _start(config: pytest.Config) -> None:
    if not config.pluginmanager.has_plugin(_RECORDING):
        from dynadiag.testing.session import RecordedSession

        config.pluginmanager.register(RecordedSession(config), _RECORDING)


@pytest.fixture
def dynadiag(request: pytest.FixtureRequest) -> Iterator[CompileChecker]:
    """What torch.compile does in this test: ``dynadiag.explain(fn, *args)``, ``dynadiag.assert_one_graph()``."""
    from dynadiag.testing.fixture import CompileChecker

    with CompileChecker.of(request.node) as checker:
        yield checker
