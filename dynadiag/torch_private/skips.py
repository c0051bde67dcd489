"""Where Dynamo says that it leaves a frame to Python before it traces anything: a word of its own log, no event.

``CatchErrorsWrapper`` (convert_frame.py) logs ``skipping: FUNCTION (reason: REASON, file: FILE)`` at DEBUG. Read in
torch 2.11.0, 2.13.0 and 2.15.0; 2.11 says nothing where it found no tensor in the frame.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

__all__ = ["listen", "release"]

_LOGGER = "torch._dynamo.convert_frame"
_MESSAGE = "skipping: %s (reason: %s, file: %s)"

Heard = Callable[[CodeType, str], None]  # the code of the frame that was left, and Dynamo's reason


class _HeardLogger(logging.Logger):
    """Dynamo's logger while we listen: what it says, and to whom, stays as the program's configuration has it."""

    _listeners: tuple[Heard, ...]

    def debug(self, msg: object, *args: object, **options: Any) -> None:
        if msg == _MESSAGE and len(args) == 3:
            frame = sys._getframe(1).f_locals.get("frame")
            self._tell(getattr(frame, "f_code", None), str(args[1]))
        options["stacklevel"] = options.get("stacklevel", 1) + 1
        super().debug(msg, *args, **options)

    def _tell(self, code: object, reason: str) -> None:
        if isinstance(code, CodeType):
            for heard in self._listeners:
                heard(code, reason)


def listen(heard: Heard) -> None:
    """Have ``heard(code, reason)`` called for each frame that Dynamo leaves; it must not raise."""
    logger = logging.getLogger(_LOGGER)
    known = logger._listeners if isinstance(logger, _HeardLogger) else ()
    logger.__dict__["_listeners"] = (*known, heard)
    logger.__class__ = _HeardLogger


def release(heard: Heard) -> None:
    """Take ``heard`` away; with the last one the logger is an ordinary one again."""
    logger = logging.getLogger(_LOGGER)
    if not isinstance(logger, _HeardLogger):
        return
    rest = tuple(one for one in logger._listeners if one != heard)
    logger.__dict__["_listeners"] = rest
    if not rest:
        del logger.__dict__["_listeners"]
        logger.__class__ = logging.Logger  # type: ignore[assignment]  # what it was
