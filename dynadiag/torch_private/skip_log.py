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

from dynadiag.torch_private import loggers

__all__ = ["listen_for_skips", "stop_listening_for_skips"]

_LOGGER = "torch._dynamo.convert_frame"
_MESSAGE = "skipping: %s (reason: %s, file: %s)"

OnSkip = Callable[[CodeType, str], None]  # the code of the frame that was left, and Dynamo's reason


class _SkipLogger(logging.Logger):
    """Dynamo's logger while we listen: what it says, and to whom, stays as the program's configuration has it."""

    def debug(self, msg: object, *args: object, **options: Any) -> None:
        own = super().debug  # before we tell: a listener may release us, and we are an ordinary logger from then on
        if msg == _MESSAGE and len(args) == 3:
            frame = sys._getframe(1).f_locals.get("frame")
            _tell(loggers.listeners(self), getattr(frame, "f_code", None), str(args[1]))
        if getattr(own, "__func__", None) is logging.Logger.debug:
            options["stacklevel"] = options.get("stacklevel", 1) + 1
        own(msg, *args, **options)


def _tell(listeners: tuple[OnSkip, ...], code: object, reason: str) -> None:
    if isinstance(code, CodeType):
        for heard in listeners:
            heard(code, reason)


def listen_for_skips(heard: OnSkip) -> None:
    """Have ``heard(code, reason)`` called for each frame that Dynamo leaves; it must not raise."""
    loggers.attach(logging.getLogger(_LOGGER), _SkipLogger, heard)


def stop_listening_for_skips(heard: OnSkip) -> None:
    """Take ``heard`` away; with the last one the logger is an ordinary one again."""
    loggers.detach(logging.getLogger(_LOGGER), _SkipLogger, heard)
