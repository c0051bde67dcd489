"""How we speak to somebody whose program is running: one line on its stderr."""

from __future__ import annotations

import sys

from dynadiag.errors import DynadiagError

__all__ = ["say"]


def say(what: str, error: BaseException) -> None:
    """Write ``dynadiag: WHAT: why`` as one line, if there is a stderr to write it to. Never raises."""
    try:
        why = str(error) if isinstance(error, DynadiagError) else f"{type(error).__name__}: {error}"
        sys.stderr.write(f"dynadiag: {what}: {' '.join(why.split())}\n")
    except Exception:  # noqa: BLE001 - stderr is closed, None or the program's own object: nothing is left to say it on
        return
