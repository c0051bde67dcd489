"""Random keys on several recordings: whatever is pressed, in whatever order, the browser goes on."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.tui import build
from tests.tui.conftest import settle
from tests.tui.test_search_process import _plan
from tui.app import Browser
from tui.session import Session

KEYS = [
    *"123456789000jjjkkkllhhgGnNsSfyYvdJKLHtr?<>BMRxcaz&:vvo-+*EVV(){}nnNN",
    *("enter", "enter", "escape", "escape", "tab", "tab", "shift+tab", "slash", "backspace"),
    *("ctrl+d", "ctrl+u", "space"),
    *("ctrl+p", "ctrl+o", "home", "end", "pageup", "pagedown", "left_square_bracket", "right_square_bracket", "ctrl+c"),
]
SIZES = [(120, 40), (80, 24), (200, 60), (40, 10), (30, 8)]
RESIZE = 0.01  # of the keys


def recordings(folder: Path) -> dict[str, Path]:
    """Recordings of which each fills other views: empty, a whole program, a program that failed, a search."""
    made = {
        "empty": [*build.run_events(), *build.end_events()],
        "program": build.program(),
        "values": build.program_with_values(),
        "failed": [*build.run_events(), *build.compile_events("0/0"), *build.end_events(1)],
        "search": build.search_events(3, {"verdict": "passes"}),
    }
    return {name: build.recording(folder, events, name) for name, events in made.items()}


async def walk(path: Path, seed: int, count: int) -> None:
    """Press keys; if the browser ends with an error, the test that runs it fails with that error."""
    chosen = random.Random(seed)
    with Session.open(path) as session:
        app = Browser(session)
        async with app.run_test(size=SIZES[0], notifications=True) as pilot:
            await settle(pilot)
            pressed: list[str] = []
            for _ in range(count):
                if chosen.random() < RESIZE:
                    await pilot.resize_terminal(*chosen.choice(SIZES))
                pressed.append(chosen.choice(KEYS))
                await pilot.press(pressed[-1])
                assert app.is_running, pressed[-40:]
            await settle(pilot)


@pytest.mark.parametrize("name", ["empty", "program", "values", "failed", "search"])
async def test_random_keys(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches that are started are short ones of ours; files that are written are in the test's folder.

    A key takes 20 times as long as in a terminal: 10,000 are pressed there (`test_fuzz_terminal`).
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tui.command_process.program_command", lambda *_, **__: _plan(tmp_path, "prog.py"))
    monkeypatch.setattr(Browser, "exit", lambda *_, **__: None)  # `q`, and quit in the palette
    await walk(recordings(tmp_path)[name], 0, 50)
