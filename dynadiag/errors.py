"""The errors that dynadiag itself raises.

    DynadiagError            what a user can mend: the message names the input and the cure
    └── UnreadableInput      a file or target that cannot be read

``main`` catches `DynadiagError` once, prints it as one line and exits with 2. Failures of the user's own program
are never raised as these: they are outcomes.
"""

from __future__ import annotations

__all__ = ["DynadiagError", "UnreadableInput"]


class DynadiagError(Exception):
    """Something that the user can mend. The message is one line that names the input and the cure."""


class UnreadableInput(DynadiagError):  # noqa: N818 - it says what is wrong; "Error" would add nothing
    """A recording, log or target that is missing, truncated beyond use, or not what it claims to be."""
