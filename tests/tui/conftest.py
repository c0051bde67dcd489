"""One recording for all tests that only look, and the browser over it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from tests.tui import build
from tui.app import Browser
from tui.session import Session

Opened = Callable[..., AbstractAsyncContextManager[Pilot[int]]]


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recording of a program with a break, a recompile, graphs and kernels."""
    return build.recording(tmp_path_factory.mktemp("recordings"), build.program())


async def settle(pilot: Pilot[int]) -> None:
    """Wait until the workers have brought what they were sent for, and the debounced details were asked for."""
    for _ in range(3):
        await pilot.pause(0.07)
        await pilot.app.workers.wait_for_complete()
    await pilot.pause()


@asynccontextmanager
async def browsing(path: Path, size: tuple[int, int] = (120, 40)) -> AsyncIterator[Pilot[int]]:
    """The browser over a recording, its first screen filled."""
    with Session.open(path) as session:
        app = Browser(session)
        async with app.run_test(size=size) as pilot:
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
