"""Change what one logger of torch's does, and change it back: by its class, which `logging.config` leaves alone."""

from __future__ import annotations

import logging
from typing import Any

__all__ = ["attach", "detach", "listeners"]


def attach(logger: logging.Logger, kind: type[logging.Logger], listener: Any) -> None:
    """Make a logger one of ``kind`` with one more listener. A class of the program's stays its base."""
    if not isinstance(logger, kind):
        own = type(logger)
        logger.__class__ = kind if own is logging.Logger else type(kind.__name__, (kind, own), {"_own": own})
    logger.__dict__["_listeners"] = (*listeners(logger), listener)


def detach(logger: logging.Logger, kind: type[logging.Logger], listener: Any) -> None:
    """Take a listener away; with the last one the logger gets the class that it had."""
    rest = tuple(one for one in listeners(logger) if one != listener)
    logger.__dict__["_listeners"] = rest
    if not rest and isinstance(logger, kind):
        logger.__class__ = getattr(logger, "_own", logging.Logger)
        del logger.__dict__["_listeners"]


def listeners(logger: logging.Logger) -> tuple[Any, ...]:
    """The listeners of a logger; none where another thread or one of them has released it a moment ago."""
    found: tuple[Any, ...] = logger.__dict__.get("_listeners", ())
    return found
