"""Whose code a place is in: the program's, or torch's own, which the program's author cannot mend."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dynadiag.recording.records import Break, Frame

__all__ = ["is_torchs", "way_in"]

# Where pip, Debian and conda put the package. The folder's name alone says nothing: a program may have one of its own.
_TORCH = re.compile(r"[/\\](site|dist)-packages[/\\]torch[/\\]")


def is_torchs(file: str | None) -> bool:
    """Whether a file belongs to torch."""
    return file is not None and _TORCH.search(file) is not None


def way_in(item: Break) -> Frame | None:
    """The innermost line outside torch on the way to a break."""
    return _last_outside(item.user_stack)


def _last_outside(frames: Sequence[Frame]) -> Frame | None:
    return next((frame for frame in reversed(frames) if not is_torchs(frame.file)), None)
