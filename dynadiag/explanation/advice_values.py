"""Advice where a Python value or object changed: numbers, flags, containers, functions.

Counted on torch 2.13 with four values in turn (compiles): a float, wherever it is kept, and an integer that is an
argument, an item or an attribute of a plain object 2, with ``dynamic=True`` 1, with ``dynamic=False`` 4; an integer
that is a global or in one, a closure's variable, a default or a module's attribute 4, whatever ``dynamic`` is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from dynadiag.explanation.advice_table import advice
from dynadiag.explanation.findings import Advice
from dynadiag.explanation.guard_text import ARGUMENTS, is_global, joined_sources, own_attribute, source_text
from dynadiag.explanation.guards import ParsedGuard

__all__ = [
    "first_call",
    "freed",
    "identity",
    "keys",
    "left_over",
    "length",
    "membership",
    "none",
    "presence",
    "type_",
    "value",
]

_ITEM = re.compile(r"\[\d+\]$")
_INTEGER = re.compile(r"-?\d+")
_LEARNING_RATE = re.compile(r"param_groups\[\d+\]\['lr'\]")
_CELL = re.compile(r"\.__closure__\[\d+\]\.cell_contents$")
_DEFAULT = re.compile(r"\.__(?:kw)?defaults__\[")
_FLOAT = re.compile(r"-?(\d+\.\d*(e[+-]?\d+)?|\d+e[+-]?\d+|inf|nan)")


def value(found: Sequence[ParsedGuard]) -> list[Advice]:
    seen: dict[str | None, set[str | None]] = {}
    told: dict[tuple[str, str], ParsedGuard] = {}  # of the items of one container the first
    for item in found:
        seen.setdefault(item.subject, set()).add(item.was)
        told.setdefault((_ITEM.sub("[", item.subject or ""), _sort(item.was or "")), item)
    return [given for item in told.values() for given in _value_of(item, item.goes_on or len(seen[item.subject]) > 1)]


def _value_of(item: ParsedGuard, again: bool) -> list[Advice]:
    subject, was = item.subject or "", item.was or ""
    name = f"`{source_text(subject)}`"
    if item.now is not None and _sort(item.now) != _sort(was):
        return type_([item])
    if subject.endswith(".training"):
        return [advice("value.training", name=name)]
    if _CELL.search(subject):
        return [_closed_over(f"`{source_text(_CELL.sub('', subject))}`", was, again)]
    if _DEFAULT.search(subject):
        return [advice("value.constant", name=name)]
    if _is_attribute(subject):
        return [_attribute(name, was, stays=again or is_global(subject))]
    if is_global(subject):
        return [_global(name, was, again)]
    return [_argument(name, was, again)]


def _sort(value: str) -> str:
    """What a short text of a value is of: a number of either kind, or something else."""
    return "int" if _INTEGER.fullmatch(value) else "float" if _FLOAT.fullmatch(value) else "other"


def _is_attribute(subject: str) -> bool:
    """Whether a source is an attribute of something (``L['self'].k``), not a name (``n``, ``L['n']``)."""
    return "." in re.sub(r"\[.*?\]", "", subject)


def _is_argument(subject: str) -> bool:
    return not (_is_attribute(subject) or is_global(subject) or _CELL.search(subject))


def _closed_over(function: str, was: str, again: bool) -> Advice:
    if _FLOAT.fullmatch(was):
        return _float(f"A float that the function {function} closes over", again)
    return advice("value.closed_over", function=function)


def _global(name: str, was: str, again: bool) -> Advice:
    if _FLOAT.fullmatch(was):
        return _float(f"The global {name}, a float,", again)
    return advice("value.global_integer" if _INTEGER.fullmatch(was) else "value.global", name=name)


def _attribute(name: str, was: str, *, stays: bool) -> Advice:
    """``stays``: an integer or float is still a constant after it has changed."""
    if _FLOAT.fullmatch(was) and _LEARNING_RATE.search(name):
        return advice("value.learning_rate", name=name)
    if _FLOAT.fullmatch(was):
        return _float(f"The float attribute {name}", stays)
    if _INTEGER.fullmatch(was):
        plain = "" if stays else " On an object that is no module torch makes it a symbol from now on."
        return advice("value.integer_attribute", name=name, plain=plain)
    return advice("value.attribute", name=name)


def _argument(name: str, was: str, again: bool) -> Advice:
    if _INTEGER.fullmatch(was):
        return advice("value.integer_again" if again else "value.integer", name=name)
    return _float(f"The float {name}", again) if _FLOAT.fullmatch(was) else advice("value.constant", name=name)


def _float(what: str, again: bool) -> Advice:
    return advice("value.float_again" if again else "value.float", what=what)


def length(found: Sequence[ParsedGuard]) -> list[Advice]:
    values = [item for item in found if item.subject not in ARGUMENTS]
    filled = [item for item in values if _is_filled(item)]
    others = [item for item in values if item not in filled]
    called = [advice("items.arguments")] if len(values) < len(found) else []
    kept = [("items.filled", filled), ("items.length", others)]
    return called + [advice(key, names=joined_sources(items)) for key, items in kept if items]


def _is_filled(item: ParsedGuard) -> bool:
    """Whether a container was empty in the first call alone."""
    return item.was == "length 0" and not item.goes_on and not _is_argument(item.subject or "")


def first_call(found: Sequence[ParsedGuard]) -> list[Advice]:
    return [advice("object.first_call", name=f"`{source_text(found[0].subject)}`")]


def keys(found: Sequence[ParsedGuard]) -> list[Advice]:
    return [advice("items.keys", names=joined_sources(found))]


def membership(found: Sequence[ParsedGuard]) -> list[Advice]:
    attributes = [replace(item, subject=name) for item in found if (name := own_attribute(item))]
    others = [item for item in found if not own_attribute(item)]
    kinds = (("items.membership", others), ("object.own_attribute", attributes))
    return [advice(key, names=joined_sources(items)) for key, items in kinds if items]


def identity(found: Sequence[ParsedGuard]) -> list[Advice]:
    code = any((item.subject or "").endswith("__code__") for item in found)
    function = code or any("function" in (item.index or item.was or "") for item in found)
    return [advice("object.function" if function else "object.identity", names=joined_sources(found))]


def freed(_found: Sequence[ParsedGuard]) -> list[Advice]:
    return [advice("object.freed")]


def type_(found: Sequence[ParsedGuard]) -> list[Advice]:
    return [advice("object.type", names=joined_sources(found))]


def none(found: Sequence[ParsedGuard]) -> list[Advice]:
    attributes = [item for item in found if _is_attribute(item.subject or "")]
    others = [item for item in found if item not in attributes]
    kinds = (("object.none", others), ("object.none_attribute", attributes))
    return [advice(key, names=joined_sources(items)) for key, items in kinds if items]


def left_over(_found: Sequence[ParsedGuard]) -> list[Advice]:
    return [advice("break.left_over")]


def presence(found: Sequence[ParsedGuard]) -> list[Advice]:
    return [advice("object.presence", names=joined_sources(found))]
