"""One recording for all tests that only look, and the browser over it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

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
    """Press keys, and wait until what they led to is there."""
    for key in keys:
        await pilot.press(key)
    await settle(pilot)


def screen(pilot: Pilot[int]) -> str:
    """What stands on the screen, as text."""
    width, height = pilot.app.size
    lines = pilot.app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in lines[:height]) if width else ""
