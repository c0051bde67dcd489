"""Replace the class of one of torch's loggers, and restore it. `logging.config` does not touch classes."""

from __future__ import annotations

import logging
from typing import Any

__all__ = ["attach", "detach", "listeners"]


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
