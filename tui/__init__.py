"""The terminal browser of a recording. It reads recordings and explanations, and never imports torch.

Widgets render, messages carry, workers fetch. `run` is all that the command line needs.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["run"]


def run(path: Path) -> int:
    """Open the recording at `path` and browse it until the user quits; the exit code.

    Raises `dynadiag.errors.DynadiagError` before the terminal is touched, where the recording cannot be read.
    """
    from tui.app import Browser
    from tui.session import Session

    with Session.open(path) as session:
        return Browser(session).run() or 0
