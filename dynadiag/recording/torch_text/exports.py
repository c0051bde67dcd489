"""Reads what torch says of an export, or of a file of one, that failed for what the program gave it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dynadiag.recording.torch_text.kinds import compiled_kinds, kind_of

UNHASHABLE = "unhashable output"  # the kind of a failure that a line of the program may raise as well

_CLASS = r"<class '(?:[^']*\.)?(?P<name>\w+)'>"
# Texts of torch 2.11 to 2.15: non_strict_utils.py, aot_autograd.py, output_graph.py, dynamic_shapes.py, serialize.py.
_KINDS = compiled_kinds(
    {
        "input class": rf"Unsupported input type {_CLASS}",
        "output class": rf"Found {_CLASS} in output, which is not a known type",
        # 2.11 looks up in a set what is returned: an object without a hash, as of a dataclass, fails there.
        UNHASHABLE: r"\Aunhashable type: '(?!(?:dict|list|set|bytearray|slice)')(?P<name>\w+)'",
        "traced output": r"Encountered unrecognized type \w+\((?P<name>\w+)\) at output",
        "unnamed class": rf"No registered serialization name for {_CLASS} found",
        "shape of class": rf"Cannot associate shape .{{0,200}} specified at .{{0,200}} to non-tensor type {_CLASS}",
        "unregistered operator": r"failed to resolve torch\.ops\.(?P<name>\w+\.\w+)[\w.]* to an operator",
        "operator of a package": r"Could not find schema for (?P<name>\w+::\w+)",
    }
)
# A check that torch proposes for a number whose value it does not know, in the program's own names.
_CHECK = re.compile(r"^ *\d+\. torch\._check\((?P<text>.+)\)$", re.MULTILINE)
_SIZES = re.compile(r"\(Size-like symbols: (?P<names>[^)]*)\)")
_UNNAMED = re.compile(r"\bz?u[fi]?\d+\b")  # a number for which the program has no name


@dataclass(frozen=True, slots=True)
class ExportFacts:
    """``kind`` is what the export failed for, None for another reason, and ``name`` the class or operator it is about.

    ``checks`` are the conditions, one the opposite of the other, of which torch has to know one, the likely one first.
    ``asks_size``: the number that is asked about is the size of a tensor.
    """

    kind: str | None = None
    name: str = ""
    checks: tuple[str, ...] = ()
    asks_size: bool = False


def read_export_failure(message: str) -> ExportFacts:
    """Return what the message of a failed export says."""
    checks = tuple(match["text"] for match in _CHECK.finditer(message) if not _UNNAMED.search(match["text"]))
    sizes = _SIZES.search(message)
    kind, match = kind_of(message, _KINDS)
    name = match["name"].replace(".", "::") if match else ""
    return ExportFacts(kind, name, _likely_first(checks), sizes is not None and sizes["names"] != "none")


def _likely_first(checks: tuple[str, ...]) -> tuple[str, ...]:
    """torch asks for the special case (``n == 0``), so its opposite is likely; two sizes are likely to be equal.

    >>> _likely_first(("n == 0", "n != 0")), _likely_first(("x.shape[0] == n", "x.shape[0] != n"))
    (('n != 0', 'n == 0'), ('x.shape[0] == n', 'x.shape[0] != n'))
    """
    other = checks[0].partition(" == ")[2] if checks else ""
    return checks if other and not other.isdigit() else checks[::-1]
