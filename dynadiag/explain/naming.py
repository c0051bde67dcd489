"""Sources of guards as the program writes them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dynadiag.explain.guards import Reading

__all__ = ["is_global", "names", "shown"]

_LOCAL = re.compile(r"L\['(?P<name>[^']+)'\]")
_GLOBAL = re.compile(r"G\['(?P<name>[^']+)'\]")


def shown(source: str | None) -> str:
    """A source as the program writes it: ``L['x']`` is ``x``, a global is its name."""
    text = _GLOBAL.sub(r"\g<name>", _LOCAL.sub(r"\g<name>", source or "a value"))
    text = re.sub(r"___stack\d+", "<value from before the break>", text)
    text = re.sub(r"^___from_numpy\((.*)\)$", r"\1", text.removesuffix(".__code__"))
    return re.sub(r"\._(modules|parameters|buffers)\['(\w+)'\]", r".\2", text)


def is_global(source: str) -> bool:
    """Whether a source is a global of the program."""
    return _GLOBAL.match(source) is not None


def names(found: Sequence[Reading]) -> str:
    """The subjects, as the program writes them."""
    each = list(dict.fromkeys(f"`{shown(item.subject)}`" for item in found))
    more = f" and {len(each) - 3} more" if len(each) > 3 else ""
    return ", ".join(each[:3]) + more
