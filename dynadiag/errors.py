"""The errors that dynadiag itself raises.

    DynadiagError            what a user can mend: the message names the input and the cure
    ├── UnreadableInput      a file or target that cannot be read
    └── UnwritableOutput     a file that cannot be written: a full disk, no permission

``main`` catches `DynadiagError` once, prints it as one line and exits with 2. Failures of the user's own program
are never raised as these: they are outcomes. While the user's program runs, an error of ours is one line on its stderr
(`say`).
"""

from __future__ import annotations

import os
import sys


class DynadiagError(Exception):
    """Something that the user can mend. The message is one line that names the input and the cure."""

    def _render_traceback_(self, *_: object) -> list[str]:
        """What a notebook shows of it: IPython asks for this. The lines of ours above it tell the user nothing."""
        return [f"{type(self).__name__}: {self}"]


class UnreadableInput(DynadiagError):  # noqa: N818 - it says what is wrong; "Error" would add nothing
    """A recording, log or target that is missing, truncated beyond use, or not what it claims to be."""


class UnwritableOutput(DynadiagError):  # noqa: N818 - as above
    """The system refused to write a file: the disk is full, or permission is missing."""


def say(what: str, error: BaseException) -> None:
    """Write ``dynadiag: WHAT: why`` as one line, if there is a stderr to write it to. Never raises."""
    try:
        why = str(error) if isinstance(error, DynadiagError) else f"{type(error).__name__}: {error}"
        sys.stderr.write(f"dynadiag: {what}: {' '.join(why.split())}\n")
    except Exception:  # noqa: BLE001 - stderr is closed, None or the program's own object: nothing is left to say it on
        return


def discard_stdout() -> None:
    """Redirect stdout to the null device, so that the interpreter does not fail to flush it at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError:  # stdout has no file descriptor, so it has no such problem
        return
