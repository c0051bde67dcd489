"""One recording for all tests that only look, and the browser over it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
from textual.pilot import Pilot

from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Event
from tests.tui import build
from tui.app import Browser
from tui.session import Session

_ROUNDS = 3


@pytest.fixture(autouse=True)
def settings(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the settings, which does not exist; it is not the user's own."""
    folder = tmp_path_factory.mktemp("config")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    return folder / "dynadiag" / "browser.json"


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recording of a program with a break, a recompile, graphs and kernels."""
    return build.recording(tmp_path_factory.mktemp("recordings"), build.program())


async def settle(pilot: Pilot[int]) -> None:
    """Wait until nothing has been read for a few rounds of the event loop."""
    app = pilot.app
    assert isinstance(app, Browser)
    quiet = 0
    while quiet < _ROUNDS:
        await pilot.pause(0.005)
        quiet = 0 if app.busy else quiet + 1


@asynccontextmanager
async def browsing(
    path: Path, size: tuple[int, int] = (120, 40), *, folder: Path | None = None, pick: bool = False
) -> AsyncIterator[Pilot[int]]:
    """The browser over a recording, its first screen filled."""
    with Session.open(path) as session:
        app = Browser(session, folder=folder, pick=pick)
        async with app.run_test(size=size, notifications=True) as pilot:
            await settle(pilot)
            yield pilot


async def press(pilot: Pilot[int], *keys: str) -> None:
    """Press keys, and wait each time until what the key led to is there."""
    for key in keys:
        await pilot.press(key)
        await settle(pilot)


def screen(pilot: Pilot[int]) -> str:
    """What stands on the screen, as text."""
    width, height = pilot.app.size
    lines = pilot.app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in lines[:height]) if width else ""


class CountingRecording:
    """Counts the records, events and texts that are read of a recording."""

    def __init__(self, recording: Recording) -> None:
        self._recording, self.rows_read = recording, 0
        self._lock = Lock()  # workers count, too

    def __getattr__(self, name: str) -> Any:
        read = getattr(self._recording, name)
        return partial(self._counted, read) if callable(read) else read

    def _counted(self, read: Callable[..., Any], *values: Any, **named: Any) -> Any:
        found = read(*values, **named)
        if isinstance(found, Iterator):
            found = list(found)
        with self._lock:
            self.rows_read += len(found) if isinstance(found, (tuple, list)) else isinstance(found, (str, Event))
        return found


def counting(session: Session) -> CountingRecording:
    """Count what a session reads from here on."""
    counter = session.recording = CountingRecording(session.recording)  # type: ignore[assignment]  # it has all of it
    return counter
