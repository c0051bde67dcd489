"""Reads what torch says of a size that was marked dynamic, or that export was given a `Dim` for, and is not free.

It is the text of a ``ConstraintViolationError`` (produce_guards_verbose, symbolic_shapes.py), and what torch suggests
at its end (``prettify_results``), or of the ValueError that export raises of a `Dim.DYNAMIC` (non_strict_utils.py).
Read in torch 2.11 to 2.15.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dynadiag.recording.torch_text.sources import source_text

__all__ = ["ViolatedConstraint", "read_constraints", "read_fixes"]

_CONSTANT = re.compile(
    r"You marked (?P<size>\S+) as dynamic but your code specialized it to be a constant \((?P<guard>[^)]*)\)"
)
_RANGE = re.compile(
    r"Not all values of (?P<size>\S+) = \S+ in the specified range(?: (?P<range>\S.*?))? satisfy the generated guard "
    r"(?P<guard>[^\n]+?)\.?(?:\n|$)"
)
_RELATED = re.compile(
    r"The values of (?P<size>\S+) = \S+ (?:and|must always be related to the values of) (?P<guard>\S+) = \S+ "
    r"(?:must always be equal|by)"
)
_HINTED = re.compile(
    r"but (?:export 0/1 specialized due to hint of|tracing inferred a static shape of) (?P<guard>\d+) for dimension "
    r"inputs\['(?P<size>\w+)'\](?P<dimension>\S*?)\.(?:\n|$)"
)
_CONFLICT = re.compile(
    r"user-specified min/max range of (?P<range>\[[^]]*\]), conflicting with the inferred min/max range of "
    r"(?P<guard>\[[^]]*\]), for inputs\['(?P<size>\w+)'\](?P<dimension>\S*?)\.(?:\n|$)"
)
_FIXES = re.compile(r"^Suggested fixes:\n(?P<fixes>(?:  \S[^\n]*\n?)+)", re.MULTILINE)
_FIX = re.compile(r"^  (?P<name>\w+) = (?P<value>[^\n]+)$", re.MULTILINE)
_NO_BOUND = re.compile(r" and \S+ <= IntInfinity\(\)")
_KINDS = (
    ("constant", _CONSTANT),
    ("constant", _HINTED),
    ("range", _RANGE),
    ("range", _CONFLICT),
    ("related", _RELATED),
)


@dataclass(frozen=True, slots=True)
class ViolatedConstraint:
    """A size that the program let be dynamic, and what the code demands of it.

    ``kind`` is "constant" (``held`` is its one value), "range" (``held`` is a condition, ``allowed`` the range that the
    program named) or "related" (``held`` is another size). ``size`` is the name of a `Dim`, or the size itself.
    """

    kind: str
    size: str
    held: str
    allowed: str = ""

    @property
    def is_multiple(self) -> bool:
        """Whether the code holds for multiples of a number only."""
        return self.kind == "range" and " % " in self.held

    @property
    def said(self) -> str:
        """What is wrong, in a sentence."""
        if self.kind == "constant":
            return f"`{self.size}` is marked dynamic, but the code fixes it to {self.held}"
        if self.kind == "related":
            return f"`{self.size}` and `{self.held}` are marked dynamic, but the code fixes one by the other"
        marked = f" for `{self.allowed}`" if self.allowed else ""
        return f"`{self.size}` is marked dynamic{marked}, but the code holds only for `{self.held}`"


def read_constraints(text: str) -> tuple[ViolatedConstraint, ...]:
    """Return what a message says of each size, in the order of its lines: constants first."""
    return tuple(
        ViolatedConstraint(kind, *(source_text(part) if part else "" for part in _parts(each)))
        for kind, pattern in _KINDS
        for each in pattern.finditer(text)
    )


def _parts(found: re.Match[str]) -> tuple[str, str, str]:
    named = found.groupdict()
    size = found["size"] + (named.get("dimension") or "")
    return size, _NO_BOUND.sub("", found["guard"]), named.get("range") or ""


def read_fixes(text: str) -> dict[str, str]:
    """Return what torch suggests to write for each name of a size: ``{"n": "Dim('n', min=3)"}``."""
    found = _FIXES.search(text)
    return {each["name"]: each["value"] for each in _FIX.finditer(found["fixes"])} if found else {}
