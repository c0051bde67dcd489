"""Dynamo's log message that it leaves a frame to Python before it traces anything. There is no trace event for it.

``CatchErrorsWrapper`` (convert_frame.py) logs ``skipping: FUNCTION (reason: REASON, file: FILE)`` at DEBUG. Read in
torch 2.11.0, 2.13.0 and 2.15.0. 2.11 logs nothing when it found no tensor in the frame.
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

OnSkip = Callable[[CodeType, str], None]  # the code of the skipped frame, and Dynamo's reason


class _SkipLogger(logging.Logger):
    """Dynamo's logger while we listen. What it logs, and to whom, stays as the program configured it."""

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
    """Call ``heard(code, reason)`` for each frame that Dynamo skips. It must not raise."""
    loggers.attach(logging.getLogger(_LOGGER), _SkipLogger, heard)


def stop_listening_for_skips(heard: OnSkip) -> None:
    """Remove ``heard``. Without listeners the logger is an ordinary one again."""
    loggers.detach(logging.getLogger(_LOGGER), _SkipLogger, heard)
