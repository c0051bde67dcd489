"""The terminal browser of a recording.

It reads recordings and explanations and never imports torch. Widgets draw lines, messages carry events, workers read
the recording. The command line calls `run` and nothing else.
"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tui.app import Browser

__all__ = ["run"]


def run(path: Path, place: str = "", *, folder: Path | None = None, pick: bool = False) -> int:
    """Browse a recording, or the recordings of a folder, until the user quits. Return the exit code.

    ``place`` is a source line to open at, as ``FILE:LINE``. ``folder`` is the state folder, whose recordings a key
    lists; if ``pick``, they are listed at once. Bookmarks are kept in it.

    Raises `dynadiag.errors.DynadiagError` before it changes the terminal if no recording can be read.
    """
    gc.disable()  # nothing that is imported is garbage, and the collector takes a tenth of the import time
    from dynadiag.recording.opening import has_recordings
    from tui.app import Browser
    from tui.session import Session
    from tui.terminal_watch import end_with_terminal

    gc.freeze()
    gc.enable()
    end_with_terminal()
    if path.is_dir() or has_recordings(path):
        from tui.recording_folder import open_folder

        opened = open_folder(path)
        with opened.session as session:
            return _run(Browser(session, opened.paths, opened.rank, place=place, folder=folder))
    with Session.open(path) as session:
        return _run(Browser(session, place=place, folder=folder, pick=pick))


def _run(browser: Browser) -> int:
    """Run the application and return its exit code: its own, or Textual's if it ended with an exception."""
    return browser.run() or browser.return_code or 0
