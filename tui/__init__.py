"""The terminal browser of a recording.

It reads recordings and explanations and never imports torch. Widgets draw lines, messages carry events, workers read
the recording. The command line calls `run` and nothing else.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from pathlib import Path

_SWITCH_SECONDS = 0.0005  # after which a reading thread lets a key through; of Python's 0.005 a key waits several


def run(paths: Sequence[Path], place: str = "", *, folder: Path | None = None, pick: bool = False) -> int:
    """Browse recordings, or those of folders, until the user quits. Return the exit code.

    ``place`` is a source line to open at, as ``FILE:LINE``. ``folder`` is the state folder, whose recordings a key
    lists; if ``pick``, they are listed at once. Bookmarks are kept in it.

    Raises `dynadiag.errors.DynadiagError` before it changes the terminal if no recording can be read.
    """
    gc.disable()  # nothing that is imported is garbage, and the collector takes a tenth of the import time
    from tui.app import Browser
    from tui.session import open_recordings
    from tui.terminal_driver import TerminalDriver

    gc.freeze()
    gc.enable()
    sys.setswitchinterval(_SWITCH_SECONDS)
    opened = open_recordings(paths)
    with opened.session as session:
        browser = Browser(session, opened.paths, opened.rank, place=place, folder=folder, pick=pick, ahead=True)
        browser.driver_class = TerminalDriver
        return browser.run() or browser.return_code or 0  # its own code, or Textual's if it ended with an exception
