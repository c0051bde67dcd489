"""Listen to three of torch's loggers: the trace, Dynamo's message that it skips a frame, and the scheduler's refusals.

A logger is replaced by class, which `logging.config` does not touch, and gets its own class back at the end.

Dynamo leaves some frames to Python before it traces anything, without a trace event. ``CatchErrorsWrapper``
(convert_frame.py) logs ``skipping: FUNCTION (reason: REASON, file: FILE)`` at DEBUG. Read in torch 2.11.0, 2.13.0 and
2.15.0. 2.11 logs nothing when it found no tensor in the frame.

For each pair of nodes that Inductor's scheduler does not fuse it calls ``fusion_log.debug`` with an object that has
their names and the reason (``WhyNoFuse``, scheduler.py). The text is only made if somebody listens.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

from torch._C._dynamo.eval_frame import set_eval_frame


def attach(logger: logging.Logger, kind: type[logging.Logger], listener: Any) -> None:
    """Make a logger an instance of ``kind`` with one more listener. A class that the program gave it stays a base."""
    if not isinstance(logger, kind):
        own = type(logger)
        logger.__class__ = kind if own is logging.Logger else type(kind.__name__, (kind, own), {"_own": own})
    logger.__dict__["_listeners"] = (*listeners(logger), listener)


def detach(logger: logging.Logger, kind: type[logging.Logger], listener: Any) -> None:
    """Remove a listener. Without listeners the logger gets its original class back."""
    rest = tuple(one for one in listeners(logger) if one != listener)
    logger.__dict__["_listeners"] = rest
    if not rest and isinstance(logger, kind):
        logger.__class__ = getattr(logger, "_own", logging.Logger)
        del logger.__dict__["_listeners"]


def listeners(logger: logging.Logger) -> tuple[Any, ...]:
    """Return the listeners of a logger. Empty if another thread, or one of them, has just released it."""
    found: tuple[Any, ...] = logger.__dict__.get("_listeners", ())
    return found


TRACE_LOGGER = "torch.__trace"
_SKIP_LOGGER = "torch._dynamo.convert_frame"
_SKIPPED = "skipping: %s (reason: %s, file: %s)"
_FUSION_LOGGER = "torch._inductor.scheduler.__fusion"
_REFUSAL = "WhyNoFuse"  # the class of the message
OnSkip = Callable[[CodeType, str], None]  # the code of the skipped frame, and Dynamo's reason
OnRefusal = Callable[[str, str, str, tuple[Any, ...]], None]  # the names of both nodes, the reason, its arguments


class _MessageLogger(logging.Logger):
    """A logger of torch's while we listen. It logs the same records to the same handlers as the program configured."""

    def debug(self, msg: object, *args: object, **options: Any) -> None:
        # read before listeners are called: a listener may release this logger, which is an ordinary one from then on
        own = super().debug
        said: tuple[Any, ...] = ()
        if msg == _SKIPPED and len(args) == 3:
            code = getattr(sys._getframe(1).f_locals.get("frame"), "f_code", None)
            said = (code, str(args[1])) if isinstance(code, CodeType) else ()
        elif type(msg).__name__ == _REFUSAL:
            said = msg.name1, msg.name2, msg.reason, msg.args  # type: ignore[attr-defined]  # torch's class
        for heard in listeners(self) if said else ():
            heard(*said)
        if getattr(own, "__func__", None) is logging.Logger.debug:
            options["stacklevel"] = options.get("stacklevel", 1) + 1
        own(msg, *args, **options)


def listen_for_skips(heard: OnSkip) -> None:
    """Call ``heard(code, reason)`` for each frame that Dynamo skips. It must not raise."""
    attach(logging.getLogger(_SKIP_LOGGER), _MessageLogger, heard)


def stop_listening_for_skips(heard: OnSkip) -> None:
    """Remove ``heard``. Without listeners the logger is an ordinary one again."""
    detach(logging.getLogger(_SKIP_LOGGER), _MessageLogger, heard)


def listen_for_refused_fusions(heard: OnRefusal) -> None:
    """Call ``heard(first, second, reason, arguments)`` for each pair of nodes that is not fused. It must not raise."""
    attach(logging.getLogger(_FUSION_LOGGER), _MessageLogger, heard)


def stop_listening_for_refused_fusions(heard: OnRefusal) -> None:
    """Remove ``heard``. Without listeners the logger is an ordinary one again."""
    detach(logging.getLogger(_FUSION_LOGGER), _MessageLogger, heard)


class _TraceLogger(logging.Logger):
    """The trace's logger while we listen: we get every event, whatever the program's logging configuration is.

    ``logging.config.dictConfig`` disables loggers that it does not know or removes their handlers. ``logging.disable``
    disables all. torch checks for handlers before it makes an event. The program's own settings are kept: its handlers
    get the events that they would get without us, and `release` restores the logger.
    """

    debug = logging.Logger.debug
    handle = logging.Logger.handle
    _log = logging.Logger._log

    @property
    def disabled(self) -> bool:  # the program's value is kept but ignored
        return False

    @disabled.setter
    def disabled(self, value: bool) -> None:
        self.__dict__["disabled"] = value

    @property
    def handlers(self) -> list[logging.Handler]:
        found: list[logging.Handler] = self.__dict__["handlers"]
        return found

    @handlers.setter
    def handlers(self, value: list[logging.Handler]) -> None:
        missing = [listener for listener in listeners(self) if listener not in value]
        self.__dict__["handlers"] = [*value, *missing]

    @property
    def isEnabledFor(self) -> Callable[[int], bool]:  # noqa: N802 - logging's name
        return _always

    @isEnabledFor.setter
    def isEnabledFor(self, value: Callable[[int], bool]) -> None:  # noqa: N802 - logging's name
        self.__dict__["isEnabledFor"] = value

    def makeRecord(self, *args: Any, **options: Any) -> logging.LogRecord:  # noqa: N802 - logging's name
        if _theirs(self, logging.DEBUG):
            return super().makeRecord(*args, **options)
        return _make_record(*args, **options)

    def callHandlers(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        others = _theirs(self, record.levelno)
        before = set_eval_frame(None)  # Dynamo may be on (a backward is being compiled): it would trace the listeners
        try:
            for listener in listeners(self):
                listener.handle(record)  # it may release this logger, which is an ordinary one from then on
        finally:
            set_eval_frame(before)
        for handler in others:
            if record.levelno >= handler.level:
                handler.handle(record)
        if others and self.propagate and self.parent:
            self.parent.callHandlers(record)


def _make_record(
    name: str,
    level: int,
    pathname: str,
    lineno: int,
    message: object,
    args: Any,
    exc_info: Any,
    function: str | None = None,
    extra: Mapping[str, object] | None = None,
    stack: str | None = None,
) -> logging.LogRecord:
    """What `logging.Logger.makeRecord` makes without a record factory of the program's."""
    record = logging.LogRecord(name, level, pathname, lineno, message, args, exc_info, function, stack)
    record.__dict__.update(extra or {})
    return record


def _theirs(logger: logging.Logger, level: int) -> list[logging.Handler]:
    """The program's own handlers, if its configuration lets an event through."""
    enabled = logger.__dict__.get("isEnabledFor")
    if logger.__dict__["disabled"] or not (enabled or functools.partial(logging.Logger.isEnabledFor, logger))(level):
        return []
    ours = listeners(logger)
    return [handler for handler in logger.handlers if handler not in ours]


def _always(_level: int) -> bool:
    return True


def listen(listener: logging.Handler) -> None:
    """Make the trace's logger give every event to ``listener``."""
    logger = logging.getLogger(TRACE_LOGGER)
    attach(logger, _TraceLogger, listener)
    if listener not in logger.handlers:
        logger.handlers.append(listener)


def release(listener: logging.Handler) -> None:
    """Remove ``listener``. Without listeners the logger is an ordinary one again, as the program left it."""
    logger = logging.getLogger(TRACE_LOGGER)
    if listener in logger.handlers:
        logger.handlers.remove(listener)
    detach(logger, _TraceLogger, listener)
