"""The terminal browser of a recording. It reads recordings and explanations, and never imports torch.

Widgets render, messages carry, workers fetch. `run` is all that the command line needs.
"""

from __future__ import annotations

import gc
from pathlib import Path

__all__ = ["run"]


def run(path: Path) -> int:
    """Open the recording at `path`, or those of a folder, and browse until the user quits; the exit code.

    Raises `dynadiag.errors.DynadiagError` before the terminal is touched, where no recording can be read.
    """
    gc.disable()  # none of what is imported is garbage: looking for it takes a tenth of the time that importing takes
    from tui.app import Browser
    from tui.session import Session

    gc.freeze()
    gc.enable()
    if path.is_dir():
        from tui.folders import open_folder

        opened = open_folder(path)
        with opened.session as session:
            return Browser(session, opened.paths, opened.rank).run() or 0
    with Session.open(path) as session:
        return Browser(session).run() or 0
