"""Reads torch's expressions of symbolic sizes, as sympy prints them: ``Eq(s27, 16)``, ``zuf0 > 1.0``."""

from __future__ import annotations

import re
from collections.abc import Mapping

_SYMBOL = re.compile(r"\b[a-z]+\d+\b")
_UNDECIDED = re.compile(r"\bz?u[fi]?\d+\b")
_ONE_NUMBER = re.compile(r"Eq\(.*, -?\d+\)$")
_RELATIONS = {"Eq(": "==", "Ne(": "!="}
_FLAT = "flat_args["  # strict export's name of the inputs


def symbols_in(text: str | None) -> set[str]:
    """Return the symbols of an expression."""
    return set(_SYMBOL.findall(text or ""))


def undecided_in(text: str) -> tuple[str, ...]:
    """Return the symbols of numbers that tracing has no value of, in their order.

    >>> undecided_in("Eq(u0*s3, 4*u1 + u0)")
    ('u0', 'u1')
    """
    return tuple(dict.fromkeys(_UNDECIDED.findall(text)))


def joins_sizes(text: str | None) -> bool:
    """Whether an expression demands that several sizes make one number.

    >>> [joins_sizes(each) for each in ("Eq(((s1//4))*((s2//4)), 16)", "Eq(s1, 16)", "Eq(s1 + 1, s2 + 1)")]
    [True, False, False]
    """
    return _ONE_NUMBER.match(text or "") is not None and len(symbols_in(text)) > 1


def as_written(text: str | None, names: Mapping[str, str]) -> str:
    """Return an expression with names for its symbols, and its relation as Python has it.

    >>> as_written("Ne(Mod(s3, 4), 0)", {"s3": "x.size()[1]"})
    'Mod(x.size()[1], 4) != 0'
    """
    named = _SYMBOL.sub(lambda found: names.get(found[0], found[0]), text or "").replace(_FLAT, "inputs[")
    sign, depth = _RELATIONS.get(named[:3]), 0
    for place, letter in enumerate(named[3:-1], 3) if sign and named.endswith(")") else ():
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            return f"{named[3:place]} {sign} {named[place + 1 : -1].strip()}"
    return named
