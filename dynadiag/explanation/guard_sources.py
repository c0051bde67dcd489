"""Sources of guards as the program writes them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dynadiag.explanation.guards import ParsedGuard

__all__ = ["argument_description", "is_condition", "is_global", "joined_sources", "sizes_in", "source_text"]

_CONDITIONS = ("shape", "alias", "membership")  # kinds of guard that say more than the values do

_LOCAL = re.compile(r"L\['(?P<name>[^']+)'\]")
_VARIADIC = re.compile(r"L\['(args'\]\[(?P<index>\d+)|kwargs'\]\['(?P<key>\w+)')\](?P<rest>.*)", re.DOTALL)
_ORDINALS = {"0": "the first positional argument", "1": "the second positional argument"}
_TERM = re.compile(r"[^\s()*+,-]+")
_SIZE = re.compile(r".*?\.size\[\d+\]")
_GLOBAL = re.compile(r"G\['(?P<name>[^']+)'\]")


def source_text(source: str | None) -> str:
    """A source as the program writes it: ``L['x']`` is ``x``, a global is its name."""
    text = _GLOBAL.sub(r"\g<name>", _LOCAL.sub(r"\g<name>", source or "a value"))
    text = re.sub(r"___stack\d+", "<value from before the break>", text)
    text = re.sub(r"^___from_numpy\((.*)\)$", r"\1", text.removesuffix(".__code__"))
    return re.sub(r"\._(modules|parameters|buffers)\['(\w+)'\]", r".\2", text)


def is_global(source: str) -> bool:
    """Whether a source is a global of the program."""
    return _GLOBAL.match(source) is not None


def argument_description(source: str | None) -> str | None:
    """How a caller names an argument of a function that takes any (``*args, **kwargs``), as wrappers do."""
    match = _VARIADIC.match(source or "")
    if match is None:
        return None
    if match["key"] is not None:
        return f"the keyword argument `{match['key']}`" + (" (part of it)" if match["rest"] else "")
    which = _ORDINALS.get(match["index"], f"argument {match['index']} (from 0)")
    return f"{which} of the call" + (" (part of it)" if match["rest"] else "")


def is_condition(reading: ParsedGuard) -> bool:
    """Whether a guard is an expression over several values rather than one value that was kept."""
    return reading.kind in _CONDITIONS


def sizes_in(expression: str) -> tuple[str, ...]:
    """The sizes (``L['x'].size()[0]``) that an expression is over, in time that grows with its length only."""
    terms = _TERM.findall(expression.replace(".size()[", ".size["))
    found = {match[0] for term in terms if (match := _SIZE.match(term))}
    return tuple(sorted(size.replace(".size[", ".size()[") for size in found))


def joined_sources(found: Sequence[ParsedGuard]) -> str:
    """The subjects, as the program writes them."""
    each = list(dict.fromkeys(f"`{source_text(item.subject)}`" for item in found))
    more = f" and {len(each) - 3} more" if len(each) > 3 else ""
    return ", ".join(each[:3]) + more
