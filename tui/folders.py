"""Where things are kept between sessions."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["stage_folder"]


def stage_folder() -> Path:
    """Where the stages of kernels are kept: the folder that `dynadiag kernels --stage` keeps them in."""
    base = os.environ.get("XDG_STATE_HOME")
    return Path(base or Path.home() / ".local" / "state") / "dynadiag" / "stages"
